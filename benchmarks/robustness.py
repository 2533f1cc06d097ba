"""Robust aggregators against clients that send sign-flipped updates, on Fashion-MNIST.

    python benchmarks/robustness.py
    python benchmarks/robustness.py --attackers 3 --scale 3 --rules mean median --set partition.scheme=dirichlet_label

Every row is a run of ``fedscene run`` with the same data, seed and settings: first without attackers, then with
``--attackers`` clients that send W - scale (theta - W) instead of theta (the transform ``sign_flip``). The data are the
first ``--images`` training images and all 10,000 test images of Debian's package dataset-fashion-mnist. Printed are the
test accuracy of the last round and its distance to the run without attackers, in points.
"""

import argparse
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = {
    "ingest.source": "idx",
    "ingest.image_size": 28,
    "ingest.split.val": 0,
    "partition.scheme": "iid",
    "partition.clients": 10,
    "model.name": "lenet5",
    "method.name": "fedavg",
    "train.epochs": 1,
    "train.batch_size": 32,
    "train.optimizer": "sgd",
    "train.lr": 0.01,
    "train.momentum": 0.9,
    "federation.engine": "local",
    "evaluation.every": 1000,
    "tracking.enabled": "false",
}
RULES = ("mean", "median", "trimmed_mean", "geometric_median", "krum", "multi_krum")


def subset(source: Path, target: Path, images: int) -> None:
    """Write the first ``images`` training images, and all test images, as idx files."""
    target.mkdir(parents=True, exist_ok=True)
    for part, size in (("train-images-idx3-ubyte", 784), ("train-labels-idx1-ubyte", 1)):
        with gzip.open(source / f"{part}.gz") as file:
            head = bytearray(file.read(16 if size > 1 else 8))
            data = file.read(images * size)
        head[4:8] = struct.pack(">I", images)
        (target / f"{part}.gz").write_bytes(gzip.compress(bytes(head) + data, 1, mtime=0))
    for part in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        (target / part).write_bytes((source / part).read_bytes())


def run(runs: Path, settings: dict[str, object]) -> dict[str, float]:
    """Run ``fedscene`` with these settings; return the last round's metrics."""
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "flows.cli.main", "run", "--json", *overrides]
    where = Path(__file__).resolve().parents[1]
    environment = os.environ | {"FEDSCENE_RUNS": str(runs), "PYTHONPATH": str(where)}
    done = subprocess.run(command, env=environment, cwd=runs, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr or done.stdout}")
    return json.loads(done.stdout)["metrics"]


def cases(options: argparse.Namespace) -> list[tuple[str, dict[str, object]]]:
    """Return (title, settings) of every run: first the one without attackers."""
    bad = [f"client-{k:03d}" for k in range(options.attackers)]
    attack = f"[{{name: sign_flip, clients: [{', '.join(bad)}], scale: {options.scale}}}]"
    share = options.attackers / int(str(SETTINGS["partition.clients"]))
    own: dict[str, dict[str, object]] = {
        "trimmed_mean": {"aggregation.trimmed_mean.trim": share},
        "krum": {"aggregation.krum.byzantine": options.attackers},
        "multi_krum": {"aggregation.multi_krum.byzantine": options.attackers},
    }
    return [
        ("mean, no attackers", {}),
        *(
            (rule, {"aggregation.name": rule, "aggregation.client_transforms": attack} | own.get(rule, {}))
            for rule in options.rules
        ),
    ]


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--images", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--attackers", type=int, default=2, help="of 10 clients")
    parser.add_argument("--scale", type=float, default=5.0)
    parser.add_argument("--rules", nargs="+", default=RULES)
    parser.add_argument("--folder", type=Path, help="where data and runs go; finished runs there are found again")
    parser.add_argument("--set", dest="overrides", nargs="+", default=[], metavar="KEY=VALUE", help="other settings")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="robustness-"))
    folder.mkdir(parents=True, exist_ok=True)
    subset(options.data, folder / f"data-{options.images}", options.images)
    settings = SETTINGS | {"ingest.path": folder / f"data-{options.images}", "federation.rounds": options.rounds}
    settings |= dict(pair.split("=", 1) for pair in options.overrides)
    clean = None
    print("aggregator, test accuracy, points from the run without attackers, seconds")
    for title, changes in cases(options):
        began = time.perf_counter()
        accuracy = 100 * run(folder, settings | changes)["accuracy"]
        clean = accuracy if clean is None else clean
        print(f"{title}, {accuracy:.1f}, {accuracy - clean:+.1f}, {time.perf_counter() - began:.0f}", flush=True)


if __name__ == "__main__":
    main()
