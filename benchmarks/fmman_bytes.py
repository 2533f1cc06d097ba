"""FMMAN's bytes a cycle, in full and with the preset ``compressed``, and what compression does to its score.

    python benchmarks/fmman_bytes.py
    python benchmarks/fmman_bytes.py --sets cabinet --seeds 7 --rounds 2 --images 300

Runs the demo's network and six sites on synthetic sets. Printed are the MB of the second cycle, when clients have a
base, as a multiple of a FedAvg round of FedLGT's network with the same clients, and macro-AP after the last cycle.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = {"in full": [], "compressed": ["compressed"]}


def run(folder: Path, name: str, presets: list[str], settings: dict[str, object]) -> float:
    """Run ``fedscene`` under the id ``name``; return the macro-AP of the last round."""
    words = [part for preset in presets for part in ("--preset", preset)]
    words += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "flows.cli.main", "run", "--json", "--run-id", name, *words]
    environment = os.environ | {"FEDSCENE_RUNS": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr or done.stdout}")
    return float(json.loads(done.stdout)["metrics"]["macro_ap"])


def megabytes(run_folder: Path, number: int) -> float:
    """Return the MB of weights that travelled in a round, both ways."""
    record = json.loads((run_folder / "rounds" / f"{number:04d}" / "round.json").read_text())
    return sum(stage["bytes_down"] + stage["bytes_up"] for stage in record["stages"]) / 1e6


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["cabinet", "defects"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[7, 8, 9])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, default=900)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where data and runs go; finished runs there are found again")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fmman-bytes-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(
        "| set | FMMAN | MB a cycle | times FedLGT's round | macro-AP, mean and std over seeds |\n|---|---|---|---|---|"
    )
    for kind in options.sets:
        common = {
            "ingest.synthetic.images": options.images,
            "train.epochs": options.epochs,
            "federation.workers": options.workers,
            "federation.engine": "local",
            "tracking.enabled": "false",
            "report.images": 0,
        }
        presets = ["demo"] if kind == "cabinet" else ["demo", kind]
        lgt = {"method.name": "fedavg", "model.name": "fedlgt", "federation.rounds": 2, "seed": options.seeds[0]}
        run(folder, f"{kind}-fedlgt", presets, common | lgt | {"evaluation.every": 1000, "train.epochs": 1})
        reference = megabytes(folder / f"{kind}-fedlgt", 2)
        for variant, more in VARIANTS.items():
            scores = []
            for seed in options.seeds:
                name = f"{kind}-{'-'.join(variant.split())}-{seed}"
                settings = common | {"federation.rounds": options.rounds, "seed": seed}
                scores.append(run(folder, name, presets + more, settings))
            sent = megabytes(folder / name, 2)
            spread = f" +/- {statistics.stdev(scores):.3f}" if len(scores) > 1 else ""
            row = [kind, variant, f"{sent:.2f}", f"{sent / reference:.2f}", f"{statistics.mean(scores):.3f}{spread}"]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
