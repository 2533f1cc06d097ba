"""FedScrap's aggregation beside a plain implementation in memory: same models, peak memory, seconds.

    python benchmarks/attention_aggregation.py
    python benchmarks/attention_aggregation.py --case resnet18 10 --repeats 5

The plain one loads every update, stacks each layer, computes softmax(cos / T) of the centred rows, multiplies, and
saves one model for each client and the mean, as a short torch program would. Both go from files to files. FedScrap's
task also stores the sha256 of every model and the attention itself. The plain one is timed in float32. Models are
compared with those that it makes in float64: in float32 its cosines of layers with millions of entries are off by more
than 1e-5, so that its models are off too, by what is printed.

Each run is a process of its own. Memory is the peak of its resident memory (``getrusage``'s ``ru_maxrss``) beyond what
Python, torch and the imports took before. The limits are those that FedScrap is held to: models equal to 1e-6, memory
at most 1.5 x N x the largest layer + 200 MB, seconds at most twice the plain ones, the median of several runs.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

CASES = (("resnet18", 10), ("lenet5", 100))
TEMPERATURE = 0.5
MEMORY_MB = 200


def peak_mb() -> float:
    """Return the peak of this process's resident memory, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def make_updates(folder: Path, name: str, count: int) -> None:
    """Write ``count`` updates of a network into a new store: one start, and changes that differ by client and label."""
    import torch

    from models.build import new_model
    from models.registry import ModelSpec
    from models.settings.model import ModelSettings
    from tasks.core.records import Update
    from tasks.core.state_schema import schema_of
    from tasks.core.store import Store

    side = 224 if name == "resnet18" else 32
    model = new_model(ModelSettings.model_validate({"name": name}), ModelSpec(tuple("abcdef"), side), seed=0)
    store, draws = Store(folder), torch.Generator().manual_seed(0)
    schema = schema_of(model)
    store.write_json("state_schema.json", {key: asdict(spec) for key, spec in schema.items()})
    start = {key: value for key, value in model.state_dict().items() if key in schema}
    kinds = [{key: 0.02 * torch.randn(v.shape, generator=draws) for key, v in start.items()} for _ in range(3)]
    updates = []
    for i in range(count):
        state = {
            key: v + (kinds[i % 3][key] + 0.02 * torch.randn(v.shape, generator=draws)).abs_()
            if key.endswith("running_var")
            else v + kinds[i % 3][key] + 0.02 * torch.randn(v.shape, generator=draws)
            if v.is_floating_point()
            else v + i
            for key, v in start.items()
        }
        ref = store.put_state(f"updates/client-{i:04d}.safetensors", state)
        updates.append(Update(f"client-{i:04d}", ref, 100 + i, 10, {}, 1.0).as_dict())
    store.write_json("updates.json", {"updates": updates})


def layers_of(names: list[str]) -> dict[str, list[str]]:
    """Return module -> its parameters."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def run_plain(folder: Path, out: Path, exact: bool = False) -> None:
    """Aggregate in memory with a few lines of torch, ``exact`` in float64; write the mean and each client's model."""
    import torch
    from safetensors.torch import load_file, save_file

    from tasks.core.store import Store

    schema = Store(folder).read_json("state_schema.json")
    records = Store(folder).read_json("updates.json")["updates"]
    states = [load_file(folder / record["model"]["uri"]) for record in records]
    dtype = torch.float64 if exact else torch.float32
    sizes = torch.tensor([record["samples"] for record in records], dtype=dtype)
    weights = {}
    for layer, names in layers_of([name for name, spec in schema.items() if spec["kind"] == "parameter"]).items():
        rows = torch.stack([torch.cat([state[name].flatten() for name in names]) for state in states]).to(dtype)
        centred = torch.nn.functional.normalize(rows - rows.mean(0))
        weights[layer] = (centred @ centred.T / TEMPERATURE).softmax(1)
    mixed: list[dict[str, torch.Tensor]] = [{} for _ in range(len(states) + 1)]
    for name, spec in schema.items():
        stacked = torch.stack([state[name] for state in states])
        own = weights.get(name.rpartition(".")[0])
        if spec["kind"] == "counter":
            values = [stacked.amax(0), *stacked]
        else:
            full, flat = torch.cat([sizes[None] / sizes.sum(), own]), stacked.flatten(1).to(dtype)
            new = full @ flat
            if name.endswith("running_var"):
                means = torch.stack([state[name.replace("_var", "_mean")] for state in states]).to(dtype)
                pooled = full @ (flat + means.square()) - (full @ means).square()
                new = torch.cat([new[:1], pooled[1:]])
            values = list(new.to(stacked.dtype).reshape(-1, *stacked.shape[1:]))
        for state, value in zip(mixed, values, strict=True):
            state[name] = value.contiguous()
    for record, state in zip([{"client": "global"}, *records], mixed, strict=True):
        save_file({name: value.clone() for name, value in state.items()}, out / f"{record['client']}.safetensors")


def run_ours(folder: Path, out: Path) -> None:
    """Aggregate with FedScrap's task; say where the models are."""
    from tasks.core.aggregator_spec import AggregatorSpec
    from tasks.core.records import Update
    from tasks.core.store import Store
    from tasks.server.aggregate import aggregate
    from tasks.server.aggregation_job import AggregationJob

    context = SimpleNamespace(open_store=lambda: Store(folder), fingerprint="x", bn_policy="avg")
    updates = tuple(Update.of(value) for value in Store(folder).read_json("updates.json")["updates"])
    made = aggregate(context, AggregationJob(AggregatorSpec("tasks.server.personal.fedscrap", {}), updates))
    names = {name.removeprefix("client/"): str(folder / ref.uri) for name, ref in made.models.items()}
    (out / "ours.json").write_text(json.dumps(names))


def run_case(part: str, folder: Path, out: Path, threads: int) -> dict[str, float]:
    """Run one contestant in this process; return its seconds and the memory beyond what was there before."""
    import safetensors.torch
    import torch

    import tasks.server.aggregate
    import tasks.server.personal.fedscrap

    del safetensors, tasks
    torch.set_num_threads(threads)
    torch.ones(64, 64) @ torch.ones(64, 64)  # the library of matrix products takes its own memory at first use
    before, began = peak_mb(), time.perf_counter()
    (run_ours if part == "ours" else run_plain)(folder, out)
    return {"seconds": time.perf_counter() - began, "mb": peak_mb() - before}


def compare(folder: Path, out: Path) -> dict[str, float]:
    """Return the largest differences of the models to the plain ones, and the largest layer of one update in MB."""
    from safetensors.torch import load_file

    from tasks.core.store import Store

    places = json.loads((out / "ours.json").read_text())

    def difference() -> float:
        worst = 0.0
        for name, place in places.items():
            ours, plain = load_file(place), load_file(out / f"{name}.safetensors")
            assert ours.keys() == plain.keys()
            worst = max(worst, *(float((ours[key] - plain[key]).abs().max()) for key in ours))
        return worst

    single = difference()
    run_plain(folder, out, exact=True)
    schema = Store(folder).read_json("state_schema.json")
    state = load_file(places["global"])
    layers = layers_of([name for name, spec in schema.items() if spec["kind"] == "parameter"])
    largest = max(sum(state[name].nbytes for name in names) for names in layers.values())
    return {"difference": difference(), "single": single, "layer_mb": largest / 1e6}


def measure(name: str, count: int, repeats: int, threads: int, where: Path | None) -> bool:
    """Measure one case, print it, and return whether it keeps the limits."""
    with tempfile.TemporaryDirectory(prefix="attention-", dir=where) as place:
        folder, out = Path(place) / "run", Path(place) / "plain"
        out.mkdir(parents=True)
        command = [sys.executable, __file__, "--threads", str(threads), "--folder", str(folder), "--out", str(out)]

        def run(part: str) -> dict[str, float]:
            done = subprocess.run(
                [*command, "--part", part, name, str(count)], check=True, stdout=subprocess.PIPE, text=True
            )
            return json.loads(done.stdout) if done.stdout else {}

        run("make")
        found: dict[str, list[dict[str, float]]] = {"plain": [], "ours": []}
        for _ in range(repeats):
            for part, results in found.items():
                for made in folder.glob("updates/aggregated*"):
                    made.unlink()
                results.append(run(part))
        result = run("compare")
    limit = 1.5 * count * result["layer_mb"] + MEMORY_MB
    seconds = {part: statistics.median(one["seconds"] for one in results) for part, results in found.items()}
    mb = {part: max(one["mb"] for one in results) for part, results in found.items()}
    kept = result["difference"] <= 1e-6, mb["ours"] <= limit, seconds["ours"] <= 2 * seconds["plain"]
    print(
        f"{count} x {name}, largest layer {result['layer_mb']:.2f} MB: largest difference {result['difference']:.1e} "
        f"(limit 1e-6; to float32 {result['single']:.1e}), "
        f"memory {mb['ours']:.0f} MB (plain {mb['plain']:.0f}, limit {limit:.0f}), "
        f"seconds {seconds['ours']:.2f} (plain {seconds['plain']:.2f}, limit {2 * seconds['plain']:.2f}): "
        f"{'kept' if all(kept) else 'NOT kept'}",
        flush=True,
    )
    return all(kept)


def main() -> int:
    """Measure every case; return 1 if a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=2, action="append", metavar=("NETWORK", "UPDATES"), help="default: both")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of torch, for both")
    parser.add_argument("--folder", type=Path, help="where the files go; default: the system's temporary folder")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, name, count = options.part
        if part == "make":
            make_updates(options.folder, name, int(count))
        else:
            print(
                json.dumps(
                    compare(options.folder, options.out)
                    if part == "compare"
                    else run_case(part, options.folder, options.out, options.threads)
                )
            )
        return 0
    cases = options.case or CASES
    kept = [measure(name, int(count), options.repeats, options.threads, options.folder) for name, count in cases]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
