"""An empty round: one tiny image for each client and a network of 6,000 weights, so that only the overhead is left."""

from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.training import FIGURES, RATIOS, make_job, others, ours, rounds_and_loss, rounds_of

SETTINGS = {"model.name": "mlp", "model.mlp.hidden": "[8]", "train.batch_size": 2, "train.lr": 0.01}

FEW = 10


def clients_of(name: str) -> int:
    """Return the number of clients in the name."""
    return int(name.rpartition("-")[2])


def about(name: str) -> About:
    """Return what the page says."""
    text = (
        f"{clients_of(name)} clients with two images of 16 pixels each, and a perceptron with 8 hidden units: one step "
        "of a client takes less than a millisecond, so that a round is all overhead."
    )
    return About(f"Empty round, {clients_of(name)} clients", text, "hand-1", FIGURES, RATIOS, "loss", 0.001)


def prepare(name: str, options: Options) -> Prepared:
    """Make the data; return the contestants."""
    clients, rounds = clients_of(name), rounds_of(1 if options.quick else 14)
    settings, job = make_job(name, options, [2] * clients, 16, 4, False, SETTINGS, rounds)
    rivals = ("hand-1", "pfl-1", "flower-2")
    found = [ours(settings, job.parent, rounds, "local", 1), *others(job, options, rounds_and_loss(rounds), rivals)]
    if clients == FEW:  # many clients on Prefect: workload long-run
        found.insert(1, ours(settings, job.parent, rounds, "prefect", 2))
    return Prepared(found, {"clients": clients, "rounds": rounds})
