"""pfl-mini: pfl's small network on 32-pixel images, ten clients of equal size."""

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

CLIENTS = 10
SETTINGS = {
    "model.name": "pfl_cnn",
    "model.classifier.dropout": 0.0,  # so that all contestants compute the same
    "train.batch_size": 10,
    "train.lr": 0.1,
}


def about(name: str) -> About:
    """Return what the page says."""
    del name
    text = (
        "Ten clients with 50 images of 32 pixels each, pfl's CNN for CIFAR-10 (1,626,442 parameters) without dropout, "
        "batch 10, one epoch, SGD with learning rate 0.1. All contestants start from the same weights and see the same "
        "batches."
    )
    return About("pfl-mini", text, "hand-1", FIGURES, RATIOS, "loss", 0.02)


def prepare(name: str, options: Options) -> Prepared:
    """Make the data; return the contestants."""
    images, rounds = (20, rounds_of(1)) if options.quick else (50, rounds_of(4))
    settings, job = make_job(name, options, [images] * CLIENTS, 32, 10, False, SETTINGS, rounds)
    found = [
        ours(settings, job.parent, rounds, "local", 1),
        ours(settings, job.parent, rounds, "local", 2),
        ours(settings, job.parent, rounds, "prefect", 1),
        *others(job, options, rounds_and_loss(rounds), ("hand-1", "hand-2", "pfl-1", "pfl-2", "flower-2")),
    ]
    return Prepared(found, {"clients": CLIENTS, "images": images, "rounds": rounds, "parameters": parameters(job)})
