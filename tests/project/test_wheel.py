"""A wheel, built and installed where the source tree is not: its commands start and every packaged file is read."""

import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.support.projects import ROOT

pytestmark = pytest.mark.integration
READ_EVERYTHING = """
import sys
from importlib.resources import files
from pathlib import Path

from flows.papers.benchmark.schema import is_benchmark, load_benchmark
from flows.papers.fidelity.page import choices_table
from flows.papers.replicate.tables import load_table, shipped
from flows.settings.files import load_preset, load_settings, presets, read_yaml
from flows.settings.schema import Settings, as_values

flows = Path(str(files("flows")))
assert flows.is_relative_to(sys.prefix), flows
for preset in presets():
    assert load_preset(preset)
load_settings(None, ["demo"])
for table in shipped():
    load_benchmark(table) if is_benchmark(table) else load_table(table)
assert choices_table(as_values(Settings()))
for name in sorted(path.relative_to(flows).as_posix() for path in flows.rglob("*.yaml")):
    read_yaml(flows / name)
    print(name)
"""


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A fresh environment with the wheel: (its folder, the environment variables to use it with).

    Nothing is downloaded: the packages that the wheel needs are those of the environment that runs the tests, which is
    put behind the fresh one's own.
    """
    root = tmp_path_factory.mktemp("wheel")
    source, venv, elsewhere = root / "source", root / "venv", root / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # a build leaves its own files beside the source
        shutil.copy(ROOT / name, source)
    for floor in ("flows", "tasks", "models"):
        shutil.copytree(ROOT / floor, source / floor, ignore=shutil.ignore_patterns("__pycache__"))
    offline = os.environ | {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    offline.pop("PYTHONPATH", None)
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", root, source, env=offline, cwd=elsewhere)
    (wheel,) = root.glob("fedscene-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    run(*pip, "--python", venv / "bin" / "python", "install", "--no-deps", wheel, env=offline, cwd=elsewhere)
    (packages,) = (venv / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv, {"cwd": elsewhere, "env": offline | {"FEDSCENE_RUNS": str(root / "runs")}}


@pytest.mark.parametrize("words", [["--help"], ["fidelity", "--help"], ["methods"]], ids=" ".join)
def test_the_installed_command_starts(installed, words):
    venv, there = installed
    assert ("resnet18" if words == ["methods"] else "Usage: fedscene") in run(
        venv / "bin" / "fedscene", *words, **there
    )


def test_every_packaged_file_is_read_from_the_installed_copy(installed):
    venv, there = installed
    read = run(venv / "bin" / "python", "-c", READ_EVERYTHING, **there).split()
    assert read == sorted(path.relative_to(ROOT / "flows").as_posix() for path in (ROOT / "flows").rglob("*.yaml"))
    assert "papers/fidelity/fmman.yaml" in read
    assert len(read) > 30
