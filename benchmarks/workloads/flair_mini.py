"""flair-mini: many clients of very different sizes, 17 labels, a ResNet-18 of half the width."""

import numpy as np

from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.training import (
    FIGURES,
    RATIOS,
    make_job,
    others,
    ours,
    parameters,
    rounds_and_loss,
    rounds_of,
)

CLIENTS, SAMPLED, BATCH = 50, 10, 16
SETTINGS = {
    "model.name": "resnet18",
    "model.backbone.width": 0.5,
    "model.backbone.stem": "small",
    "model.backbone.norm": "group",
    "objective.name": "bce",
    "train.batch_size": BATCH,
    "train.lr": 0.05,
    "federation.clients_per_round": SAMPLED,
}


def sizes(clients: int, largest: int) -> list[int]:
    """Return the clients' numbers of images, log-uniform from 1 to ``largest``.

    A last batch of one image, which some frameworks train on and some do not, is left out.
    """
    drawn = np.exp(np.random.default_rng(0).uniform(0, np.log(largest), clients)).round().astype(int)
    drawn[0], drawn[-1] = 1, largest
    return [int(size - 1 if size > 1 and size % BATCH == 1 else size) for size in drawn]


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        f"{CLIENTS} clients with 1 to 200 images of 64 pixels and 17 labels, of which {SAMPLED} take part in a round; "
        "ResNet-18 of half the width with GroupNorm, as in pfl's benchmark on FLAIR; batch 16, one epoch, SGD. The "
        "sampled clients and their batches are the same for all contestants."
    )
    return About("flair-mini", text, "hand-1", FIGURES, RATIOS, "loss", 0.02)


def prepare(name: str, options: Options) -> Prepared:
    """Make the data; return the contestants."""
    rounds, largest = rounds_of(1), 20 if options.quick else 200
    images = sizes(CLIENTS, largest)
    settings, job = make_job(name, options, images, 64, 17, True, SETTINGS, rounds)
    rivals = ("hand-1", "hand-2", "pfl-2", "flower-2")
    found = [
        *(ours(settings, job.parent, rounds, "local", workers) for workers in (1, 2)),
        *others(job, options, rounds_and_loss(rounds), rivals),
    ]
    return Prepared(found, {"clients": CLIENTS, "images": sum(images), "rounds": rounds, "parameters": parameters(job)})
