"""FedCor's rounds: warm-up, choice, probing rounds; with a recorder whose server tasks are real."""

import hashlib
import math
from types import SimpleNamespace

import pytest

from flows.engine.engines import Outcome
from flows.federation.federation import Federation
from flows.methods import fedcor
from flows.methods.fedcor_settings import refreshes
from models.errors import UserError
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.records import ModelRef, Update
from tasks.core.round_state import RoundState
from tasks.core.store import Store
from tasks.core.train_settings import TrainSettings
from tasks.core.weighting_settings import WeightingSettings
from tasks.server.aggregation_job import Aggregated
from tasks.server.fedcor import fit_process, held_out_split, record_client_losses, select_clients
from tests.support.recorder import recorded
from tests.support.rounds import make_federation

SIZES = {"a": 10, "b": 30, "c": 20, "d": 40, "e": 25}
SCHEDULE = {"warmup": 3, "interval": 2, "gp_steps": 30, "gp_steps_later": 5, "rank": 3}
REAL = (record_client_losses, fit_process, select_clients)


def ref(*parts):
    return ModelRef("/".join(map(str, parts)), hashlib.sha256(repr(parts).encode()).hexdigest(), 1000)


class Recorder:
    """An engine whose clients report at once; the selection of clients is real, and every call is recorded."""

    def __init__(self, split="val", empty=()):
        self.split, self.empty = split, set(empty)
        self.jobs, self.averages, self.evaluated, self.fits = [], [], [], []

    def map(self, task, calls, timeout_s=None, done=None):
        assert task == "train-clients"
        return [Outcome(self.answer(jobs)) for _, (_, jobs, _) in calls]

    def answer(self, jobs):
        self.jobs += jobs
        sums = {"classification": (1.0, 1.0)}
        return [
            Update(j.client, ref("of", j.client, j.payload.start.ref.digest, j.stage), SIZES[j.client], 1, sums, 0.1,
                   ref("state", j.client, j.round, j.stage))
            for j in jobs
        ], []  # fmt: skip

    def run(self, task, title, context, *args):
        if task in REAL:
            self.fits += [args[1:]] if task is fit_process else []
            return task(context, *args)
        if task is held_out_split:
            return self.split
        if task == "evaluate-clients":
            clients, model, split = args
            self.evaluated.append((model, split))
            return {client: self.loss(model, client) for client in clients}
        if task == "check-updates":
            return args[0], []
        assert task == "aggregate"
        self.averages += recorded(args)
        models, weights = self.averages[-1]
        shares = dict(zip([u.client for u in args[0].updates], weights, strict=True))
        return Aggregated({"global": ref("mean", [r.digest for r in models], weights)}, None, {"global": shares})

    def loss(self, model, client):
        if client in self.empty:
            return math.nan, 0
        return 0.1 + int(hashlib.sha256(f"{model.digest}{client}".encode()).hexdigest(), 16) % 1000 / 1000, 5


@pytest.fixture
def rounds(tmp_path):
    """``rounds(count, ...)`` plays rounds one after the other; returns the federations, the models and the engine."""

    def play(count, method=None, first=1, start=None, server=None, store="store", engine=None, **federation):
        engine = engine or Recorder()
        context = SimpleNamespace(
            aggregator=AggregatorSpec(), server_transforms=(), downlink_transforms=(),
            seed=5, fingerprint="test", objective="bce", objective_settings=None, device="cpu", client_timeout_s=60.0,
            open_store=lambda: Store(tmp_path / store), train=TrainSettings(), weighting=WeightingSettings(),
        )  # fmt: skip
        own, options = fedcor.Settings(**(SCHEDULE | (method or {}))), {"clients_per_round": 2} | federation
        state = RoundState.starting_from(start or ref("initial"))
        state.server |= {"fedcor": server} if server else {}
        models, feds = [state.global_model], []
        for number in range(first, first + count):
            fed = make_federation(context, own, SIZES, engine=engine, number=number, state=state, **options)
            state = fedcor.run_round(fed, fed.state)
            models.append(state.global_model)
            feds.append(fed)
        return feds, models, engine

    return play


def test_the_schedule_of_warm_up_selection_and_probing_rounds(rounds):
    feds, models, engine = rounds(9)
    names = [[log.name for log in fed.record.stages] for fed in feds]
    first = ["find held-out images", "losses of the global model", "record client losses"]
    plain = [*first, "local training", "average"]
    chosen = [*first, "select clients", *plain[3:]]
    learns = [*first, "fit the Gaussian process", *chosen[3:]]
    away = [*first, "probing training", "probing average", "losses after probing", *learns[3:]]
    assert names == [plain] * 3 + [learns, chosen, away, chosen, away, chosen]
    assert [options["steps"] for _, _, options in engine.fits] == [30, 5, 5]
    assert [(losses is None, number) for losses, number, _ in engine.fits] == [(True, 4), (False, 6), (False, 8)]
    assert len({tuple(fed.record.participants) for fed in feds}) > 2
    for fed, model in zip(feds, models, strict=False):
        ids = fed.record.participants
        if fed.number <= 3:
            assert ids == Federation.sample(fed)  # sampled as for every other method
        here = [job for job in engine.jobs if job.round == fed.number and job.stage == 1]
        assert [job.client for job in here] == ids and len(here) == 2
        assert {job.payload.start.ref for job in here} == {model}
    assert [model for model, _ in engine.evaluated if model in models] == models[:9]


def test_probing_rounds_follow_the_paper_or_the_release():
    after = [n for n in range(17, 50) if refreshes(fedcor.Settings(), n)]
    assert after == [26, 36, 46]
    # Its loop, rounds from 0: train at the end of e = 15; refresh where e > 15 and e % 10 == 0; either is felt in the
    # next round, which is e + 2 counted from 1
    theirs = [e + 2 for e in range(48) if e > 15 and e % 10 == 0]
    release = fedcor.Settings(warmup=16, refresh="multiples")
    assert [n for n in range(release.warmup + 2, 50) if refreshes(release, n)] == theirs == [22, 32, 42]


def test_the_schedule_of_the_release(rounds):
    feds, _, engine = rounds(9, {"interval": 3, "refresh": "multiples"})
    away = [fed.number for fed in feds if any(log.name == "probing training" for log in fed.record.stages)]
    assert away == [5, 8]
    assert [options["steps"] for _, _, options in engine.fits] == [30, 5, 5]
    assert [number for _, number, _ in engine.fits] == [3, 4, 7]  # the age of its record: of the round before


def test_a_probing_round_leaves_nothing_but_its_record(rounds):
    feds, models, engine = rounds(6)
    fed, start = feds[5], models[5]
    away = [job for job in engine.jobs if job.stage == 2]
    assert {job.round for job in away} == {6} and len(away) == 2
    assert {job.payload.start.ref for job in away} == {start}
    # The round's model is made of the chosen clients' own training from the same start, and of nothing else.
    trained = [ref("of", client, start.digest, 1) for client in fed.record.participants]
    assert models[6] == ref("mean", [r.digest for r in trained], [0.5, 0.5])
    assert list(fed.record.updates) == [1] and set(fed.record.weights) == set(fed.record.participants)
    assert all(state.uri.endswith("/1") for state in fed.state.private.values())
    assert any("probing round of" in note for note in fed.record.notes)
    down = {log.name: log.bytes_down for log in fed.record.stages}
    up = {log.name: log.bytes_up for log in fed.record.stages}
    # It is paid for all the same; the global model is with all clients already, for its losses.
    assert down["losses of the global model"] == down["losses after probing"] == 5000 and up["probing training"] == 2000
    assert down["probing training"] == down["local training"] == 0


def test_later_rounds_depend_on_the_server_state_alone(rounds, tmp_path):
    feds, models, _ = rounds(7)
    held = Store(tmp_path / "store").get_state(feds[4].state.server["fedcor"])
    server = Store(tmp_path / "other").put_state("server.safetensors", held)  # as a finished round keeps it
    more, again, _ = rounds(2, first=6, start=models[5], server=server, store="other")
    digests = [fed.state.server["fedcor"].digest for fed in (more[-1], feds[-1])]
    assert again[1:] == models[6:] and digests[0] == digests[1]
    assert sorted(held) == ["changes", "discount", "factor", "losses", "losses_round", "mean", "rounds", "scale"]
    assert held["rounds"].tolist() == [1, 2, 3] and held["losses"].shape == (5,)
    assert held["discount"].tolist().count(1.0) < 5  # those chosen in rounds 4 and 5


def test_the_mean_is_uniform_or_weighted_by_sample_count(rounds):
    _, _, engine = rounds(1)
    assert engine.averages[0][1] == [0.5, 0.5]
    feds, _, engine = rounds(1, {"aggregation": "size"})
    sizes = [SIZES[client] for client in feds[0].record.participants]
    assert engine.averages[0][1] == pytest.approx([size / sum(sizes) for size in sizes])


def test_losses_are_of_validation_images_or_else_training_images(rounds):
    feds, _, engine = rounds(1, engine=Recorder("val"))
    assert engine.evaluated[0][1] == "val" and feds[0].record.notes == []
    feds, _, engine = rounds(1, engine=Recorder("train"))
    assert engine.evaluated[0][1] == "train" and "losses are of the training images" in feds[0].record.notes[0]
    feds, _, _ = rounds(5, {"loss_on": "val"}, engine=Recorder("val", empty="c"), store="empty")
    assert all("no val images at c" in fed.record.notes[0] for fed in feds)
    assert [len(fed.record.participants) for fed in feds] == [2] * 5  # the process stays as it started


@pytest.mark.parametrize("count", [None, 5, 7])
def test_full_participation_is_refused(rounds, count):
    with pytest.raises(UserError, match="all take part"):
        rounds(1, clients_per_round=count)
