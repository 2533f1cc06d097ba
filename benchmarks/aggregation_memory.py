"""Peak memory of aggregating 100 and 1,000 updates, for the mean, the median and a mixing into many models.

    python benchmarks/aggregation_memory.py
    python benchmarks/aggregation_memory.py --updates 50 500 --rules mean krum --network small

Each case runs in a process of its own. Reported is the peak of its resident memory (``getrusage``'s ``ru_maxrss``),
with what Python and torch take by themselves beside it. The task reads ranges of files with plain reads and maps no
file, so the page cache, which belongs to no process, is not in the figure.

The updates are five different ones of ResNet-18 (11.7 million parameters, 47 MB each) under as many hard links as there
are clients. ``mixing`` makes ``--outputs`` models out of all updates by a full matrix of weights; ``square`` makes one
model for each update, for which the network must be small: a thousand models of ResNet-18 are 47 GB.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

DISTINCT = 5


def peak_mb() -> float:
    """Return the peak of this process's resident memory, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def network(name: str):
    """Return ResNet-18, or a CNN of 0.15 million parameters."""
    from torch import nn
    from torchvision.models import resnet18

    if name == "resnet18":
        return resnet18()
    return nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Conv2d(64, 256, 3), nn.BatchNorm2d(256))


def make_updates(folder: Path, name: str, count: int) -> None:
    """Write ``count`` updates into a new store, of which ``DISTINCT`` are different, and their records."""
    import torch

    from tasks.core.records import ModelRef, Update
    from tasks.core.state_schema import schema_of
    from tasks.core.store import Store

    model, store = network(name), Store(folder)
    store.write_json("state_schema.json", {key: asdict(spec) for key, spec in schema_of(model).items()})
    draws = torch.Generator().manual_seed(0)
    refs = []
    for k in range(DISTINCT):
        state = {
            key: value + torch.rand(value.shape, generator=draws) if value.is_floating_point() else value + k
            for key, value in model.state_dict().items()
        }
        refs.append(store.put_state(f"distinct/{k}.safetensors", state))
    updates = []
    (folder / "updates").mkdir()
    for i in range(count):
        ref = refs[i % DISTINCT]
        uri = f"updates/client-{i:04d}.safetensors"
        os.link(folder / ref.uri, folder / uri)
        updates.append(Update(f"client-{i:04d}", ModelRef(uri, ref.digest, ref.bytes), 100 + i, 10, {}, 1.0))
    store.write_json("updates.json", {"updates": [update.as_dict() for update in updates]})


def run_case(folder: Path, rule: str, count: int, outputs: int) -> dict[str, float]:
    """Aggregate the updates in a store; return the peaks of memory and the seconds."""
    import torch

    from tasks.core.records import Update
    from tasks.core.store import Store
    from tasks.server.aggregate import AggregationJob, aggregate
    from tasks.server.aggregators import AggregatorSpec

    torch.set_num_threads(1)
    context = SimpleNamespace(open_store=lambda: Store(folder), fingerprint="x", bn_policy="avg")
    updates = tuple(Update.of(value) for value in Store(folder).read_json("updates.json")["updates"])
    start = updates[0].model
    before, began, rows = peak_mb(), time.perf_counter(), None
    if rule in ("mixing", "square"):
        wanted = count if rule == "square" else outputs
        weights = torch.rand(wanted, count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        weights /= weights.sum(1, keepdim=True)
        rows = {f"client/{k}": array("d", row) for k, row in enumerate(weights.numpy())}
    spec = AggregatorSpec("mean" if rows else rule)
    made = aggregate(context, AggregationJob(spec, updates, start, rows=rows))
    return {"before": before, "peak": peak_mb(), "seconds": time.perf_counter() - began, "models": len(made.models)}


def main() -> None:
    """Run every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rules", nargs="+", default=["mean", "median", "mixing"])
    parser.add_argument("--network", choices=["resnet18", "small"], default="resnet18")
    parser.add_argument("--outputs", type=int, default=100, help="models that mixing makes")
    parser.add_argument("--folder", type=Path, help="where the files go; default: the system's temporary folder")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        rule, count = options.case[0], int(options.case[1])
        if rule == "make":
            make_updates(options.folder, options.network, count)
        else:
            print(json.dumps(run_case(options.folder, rule, count, options.outputs)))
        return
    print("rule, updates, models, peak MB, of which before MB, seconds, peak against the fewest updates")
    for rule in options.rules:
        first = None
        for count in options.updates:
            folder = Path(tempfile.mkdtemp(prefix="aggregation-", dir=options.folder))
            command = [sys.executable, __file__, "--network", options.network, "--outputs", str(options.outputs)]
            command += ["--folder", str(folder / "run")]
            try:
                subprocess.run([*command, "--case", "make", str(count)], check=True)
                done = subprocess.run(
                    [*command, "--case", rule, str(count)], check=True, stdout=subprocess.PIPE, text=True
                )
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            found = json.loads(done.stdout)
            first = first or found["peak"]
            print(
                f"{rule}, {count}, {found['models']}, {found['peak']:.0f}, {found['before']:.0f}, "
                f"{found['seconds']:.0f}, {found['peak'] / first:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
