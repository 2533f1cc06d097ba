"""The other frameworks' environment: ``.venv-bench``, with torch from this project's own environment.

What cannot be installed is no error: its contestants are rows that say why.
"""

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

REQUIREMENTS = {"flower": "flwr[simulation]>=1.42,<2", "pfl": "pfl>=0.6,<1"}
PACKAGES = {"flower": "flwr", "pfl": "pfl"}
STATE = "peers.json"  # in the environment


@dataclass(frozen=True)
class Peers:
    """What is installed.

    Attributes:
        python: The environment's interpreter.
        faults: Framework -> why it is not there; none for those that are.
        versions: Framework -> its version.
    """

    python: Path
    faults: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def ensure(folder: Path, say: Callable[[str], None]) -> Peers:
    """Make the environment if it is not there, and return what it holds.

    Args:
        folder: The environment; ``peers.json`` in it says what was installed from which requirements.
        say: Writes a line of progress.
    """
    python, state = folder / "bin" / "python", folder / STATE
    if state.exists():
        stored = json.loads(state.read_text())
        if stored["requirements"] == REQUIREMENTS and not stored["faults"]:
            return Peers(python, stored["faults"], stored["versions"])
    say(f"making {folder}: Flower with Ray, and pfl, about 0.4 GB")
    faults: dict[str, str] = {}
    if not python.exists() and (fault := _call(sys.executable, "-m", "venv", folder)):
        return Peers(python, dict.fromkeys(REQUIREMENTS, f"no environment: {fault}"))
    for name, requirement in REQUIREMENTS.items():
        options = ("--quiet", "--disable-pip-version-check")
        if fault := _call(python, "-m", "pip", "install", *options, requirement):
            faults[name] = f"cannot be installed: {fault}"
    _share_torch(python)
    peers = Peers(python, faults, {name: _version(python, name) for name in REQUIREMENTS if name not in faults})
    state.write_text(json.dumps(asdict(peers) | {"python": str(python), "requirements": REQUIREMENTS}, indent=1))
    return peers


def _share_torch(python: Path) -> None:
    """Let the environment find our packages after its own: all contestants then run the same torch."""
    own = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    (Path(own) / "zz-fedscene-torch.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _version(python: Path, name: str) -> str:
    code = f"from importlib.metadata import version; print(version('{PACKAGES[name]}'))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def _call(*command: object) -> str:
    """Run a command; return the last line of its output if it fails, else ""."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not done.returncode:
        return ""
    return (done.stdout.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:300]
