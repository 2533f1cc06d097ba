"""What an FMMAN cycle costs against FedAvg rounds of its own network, in seconds and in bytes."""

from pathlib import Path

from benchmarks.harness.contestant import Metrics, Run
from benchmarks.harness.figures import per_round
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.fedscene_runs import megabytes, our_run

SETTINGS = {
    "train.epochs": 1,
    "federation.engine": "local",
    "federation.workers": 1,
    "evaluation.every": 1000,
    "tracking.enabled": "false",
    "report.images": 1,
}
FEDAVG = {"method.name": "fedavg"}
VARIANTS = {  # title, presets, settings, whether it is run once
    "fmman": ("FMMAN, a cycle of two trainings", [], {}, False),
    "fedavg": ("FedAvg with FMMAN's network, a round", [], FEDAVG, False),
    "fmman-compressed": ("FMMAN with the preset `compressed`, a cycle, once", ["compressed"], {}, True),
    "fedlgt": ("FedAvg with FedLGT's network, a round, once", [], FEDAVG | {"model.name": "fedlgt"}, True),
}


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        "The demo's six sites, network and batch size, with 600 images and one epoch, one worker. A cycle trains every "
        "client twice, so a target of 1.20 is a ratio of 2.40 here. MB are the weights sent down and up in the second "
        "round; the last two are run for those."
    )
    figures = {"cpu_s": "CPU-s a round", "wall_s": "wall s a round", "mb": "MB a round"}
    return About("FMMAN's cost", text, "fedavg", figures, ("cpu_s", "wall_s"))


def prepare(name: str, options: Options) -> Prepared:
    """Return the contestants; ``fedscene run`` makes the images in the first run."""
    work = options.work / name
    work.mkdir(parents=True, exist_ok=True)
    images, warm_up, rounds = (480, 1, 3) if options.quick else (600, 1, 5)
    sizes = {"ingest.synthetic.images": images}

    def collect(run: Run, root: Path) -> Metrics:
        return per_round(run, rounds, warm_up) | {"mb": megabytes(root)}

    found = []
    for variant, (title, presets, settings, once) in VARIANTS.items():
        chosen = SETTINGS | sizes | settings
        made = our_run(variant, title, chosen, work, rounds, presets=("demo", *presets), collect=collect)
        found.append(made.once() if once else made)
    return Prepared(found, {"clients": 6, "images": images, "rounds": rounds})
