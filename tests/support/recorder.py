"""Rounds without training: an engine that records what it is asked for, and a federation of four clients on it."""

import hashlib
from types import SimpleNamespace

from flows.engine.engines import Outcome
from tasks.client.objectives.label_mask.fmman import Settings as Objective
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.records import Dropped, ModelRef, Update
from tasks.core.train_settings import TrainSettings
from tasks.core.weighting_settings import WeightingSettings
from tasks.server.aggregation import sample_count_weights
from tasks.server.aggregation_job import Aggregated
from tasks.server.clustering import cluster_models
from tests.support.rounds import make_federation

P = 1000  # bytes of the model
SIZES = {"a": 10, "b": 30, "c": 20, "d": 40}
LOSSES = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 0.25}
GROUPS = [0, 1, 2, 0]
START = ModelRef("initial", "start", P)


def ref(*parts):
    """Return a reference that these parts name."""
    return ModelRef("/".join(map(str, parts)), hashlib.sha256(repr(parts).encode()).hexdigest(), P)


class Recorder:
    """An engine without work: clients answer at once, and every call is recorded.

    Args:
        silent: Clients that do not answer.
        refused: Clients whose update is refused.
        losses: Client id -> its loss.
    """

    def __init__(self, silent=(), refused=(), losses=LOSSES):
        self.silent, self.refused, self.losses = set(silent), set(refused), losses
        self.jobs, self.averages, self.clustered, self.aggregations = [], [], [], []

    def map(self, task, calls, timeout_s=None, done=None):
        assert task == "train-clients" and timeout_s > 0
        return [Outcome(self.answer(jobs)) for _, (_, jobs, _) in calls]

    def answer(self, jobs):
        self.jobs += jobs
        updates = [self.update(job) for job in jobs if job.client not in self.silent]
        return updates, [Dropped(j.client, j.stage, "out of order") for j in jobs if j.client in self.silent]

    def aggregated(self, job):
        """Answer an aggregation: one model that its updates and weights name."""
        self.averages += recorded([job])
        self.aggregations.append(job)
        models, weights = self.averages[-1]
        clients = [u.client for u in job.updates]
        shares = dict(zip(clients, weights, strict=True))
        return Aggregated({"global": ref("mean", [r.digest for r in models], weights)}, None, {"global": shares})

    def update(self, job):
        sums = {"classification": (self.losses[job.client] * 7, 7.0)}
        state = ref("state", job.client, job.stage)
        return Update(job.client, ref("trained", job.client, job.stage), SIZES[job.client], 1, sums, 0.1, state)

    def run(self, task, title, context, *args):
        if task == "check-updates":
            updates, start, stage, sizes, kept = args
            assert start.bytes == P and set(sizes) >= {u.client for u in updates} and kept == {}
            good = [u for u in updates if u.client not in self.refused]
            return good, [Dropped(u.client, stage, "holds NaN") for u in updates if u.client in self.refused]
        if task == "aggregate":
            return self.aggregated(*args)
        assert task is cluster_models
        self.clustered.append(args)
        return GROUPS[: len(args[0])]


def recorded(jobs):
    """Return the weights of averages: [(models, weights)]."""
    return [([u.model for u in job.updates], list(weights_of(job))) for job in jobs]


def weights_of(job):
    """Return a job's prior weights: its own, or sample counts."""
    return job.weights or sample_count_weights([u.samples for u in job.updates])


def federation(engine, method=None, clients=None, number=1, objective=None, model="fmman", state=START, **settings):
    """Return a federation, by default from ``START``, whose tasks are answered by ``engine`` and touch no store."""
    context = SimpleNamespace(
        seed=5,
        objective="fmman" if model == "fmman" else "bce",
        objective_settings=objective or Objective(),
        device="cpu",
        client_timeout_s=60.0,
        model=SimpleNamespace(name=model),
        train=TrainSettings(),
        aggregator=AggregatorSpec(),
        weighting=WeightingSettings(),
        server_transforms=(),
        downlink_transforms=(),
    )
    clients = SIZES if clients is None else clients
    return make_federation(context, method, clients, engine=engine, number=number, state=state, **settings)


def bytes_of(fed, part):
    """Return stage -> bytes where a stage has any; ``part`` is a field of its log."""
    return {log.name: getattr(log, part) for log in fed.record.stages if getattr(log, part)}


def trained(clients):
    """Return the references of what these clients trained in stage 1."""
    return [ref("trained", client, 1) for client in clients]
