"""What clients are sent: prototypes by need, the method's tensors, and their bytes; and terms in the local loop."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from flows.federation.jobs import cost_of, make_jobs
from models.errors import UserError
from tasks.client import regularisers
from tasks.client.local_data import client_data
from tasks.client.objectives import Loss
from tasks.client.objectives.label_mask.fmman import Settings as Objective
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.train import train_client
from tasks.client.work import LocalWork
from tasks.core.federation_settings import FederationSettings
from tasks.core.network import build_network, predict_logits, with_personal
from tasks.core.records import ModelRef, RoundState
from tasks.evaluation.client_losses import evaluate_client_losses
from tests.support.jobs import train_job
from tests.support.rounds import NARROW

START = ModelRef("start", "digest of the start", 100)
P = [ModelRef(f"p{k}", f"digest{k}", 100) for k in range(3)]


@pytest.mark.parametrize(
    ("references", "own", "need", "sent", "place"),
    [
        (P, 1, "none", (), None),
        ([], 1, "all", (), None),
        (P, 1, "own_cluster", ((P[1], 1),), 0),
        (P[:1], None, "own_cluster", ((P[0], 1),), None),
        (P, 1, "all", ((P[0], 1), (P[1], 1), (P[2], 1)), 1),
        ([P[0]] * 3, 2, "all", ((P[0], 3),), 0),
        ([P[0]] * 3, None, "all", ((P[0], 3),), None),
    ],
)
def test_a_client_is_sent_the_references_it_needs(references, own, need, sent, place):
    payload = Payload.of(START, references=references, own=own).reduced(need)
    assert tuple((given.ref, given.copies) for given in payload.references) == sent
    assert (payload.own_reference, payload.start.ref) == (place, START)


def jobs_of(payload, work=None, objective="bce", settings=None, **state):
    setup = SimpleNamespace(context=SimpleNamespace(objective=objective, objective_settings=settings))
    return make_jobs(setup, RoundState(**state), ["b", "a"], 2, 1, payload, work or LocalWork())


def test_each_client_may_have_its_own_regulariser():
    one, two = (LocalWork(regularisers=(RegulariserSpec("prox", {"mu": mu}),)) for mu in (1.0, 2.0))
    payload = Payload.of(START)
    assert [job.work for job in jobs_of(payload, one)] == [one, one]
    assert [(job.client, job.work) for job in jobs_of(payload, {"a": one, "b": two})] == [("a", one), ("b", two)]


def test_bytes_of_what_the_method_sends_beside_the_model():
    states = {"a": ModelRef("s", "state", 7), "b": ModelRef("t", "other state", 9)}
    sent = Payload.of(START, method=ModelRef("c", "control", 30))
    assert cost_of("x", jobs_of(sent, private=states), [], 1.0).bytes_down == 2 * (100 + 30)
    assert cost_of("x", jobs_of(sent, personal=states), [], 1.0).bytes_down == 2 * (100 + 30) + 7 + 9
    at_client = Payload.of(START, method=ModelRef("c", "control", 30), at_client=True)
    assert cost_of("x", jobs_of(at_client, private=states), [], 1.0).bytes_down == 2 * 30
    # the global model is start and reference, and sent once
    guided = jobs_of(Payload.of(START), objective="fmman", settings=Objective())
    assert [[(given.ref, given.copies) for given in job.payload.references] for job in guided] == [[(START, 1)]] * 2
    assert cost_of("x", guided, [], 1.0).bytes_down == 2 * 100


class Counting(regularisers.Regulariser):
    """Counts batches in its private state and triples the loss."""

    def __init__(self, local):
        self.before, self.shared = local.state.get("count", torch.zeros(1)), local.server_tensors["offset"]
        self.seen = 0

    def change(self, loss, images):
        self.seen += len(images)
        sums = loss.sums | {"tripled": (3 * loss.total.detach(), 1.0)}
        return dataclasses.replace(loss, total=3 * loss.total, sums=sums)

    def finish(self, steps):
        return {"count": self.before + self.seen + self.shared, "steps": torch.tensor([float(steps)])}


def test_a_regulariser_changes_every_batch_and_gets_its_state_back(make_run, tiny_data, monkeypatch):
    module = type("module", (), {"make": staticmethod(Counting)})
    monkeypatch.setattr("tasks.client.local_training.load_regulariser", lambda name: module)
    context, start = make_run(objective="bce", network=NARROW)
    store, client = context.open_store(), tiny_data.ids[0]
    sent = store.put_state("shared.safetensors", {"offset": torch.tensor([100.0])})
    count = (RegulariserSpec("count"),)
    first = train_client(context, train_job(client, 1, 1, start, method=sent, regularisers=count))
    state = store.get_state(first.state)
    assert {name: value.item() for name, value in state.items()} == {"count/count": 111.0, "count/steps": 2.0}
    job = train_job(client, 2, 1, first.model, method=sent, private=first.state, regularisers=count)
    second = train_client(context, job)
    assert store.get_state(second.state)["count/count"].item() == 222.0
    assert second.mean("tripled") > 2 * second.mean("classification")
    plain = train_client(context, train_job(client, 1, 1, start))
    assert plain.model.digest != first.model.digest and plain.state is None


def test_the_neutral_regulariser_changes_nothing():
    loss = Loss(torch.tensor(1.0))
    assert (
        regularisers.Regulariser().change(loss, torch.zeros(1)) is loss and regularisers.Regulariser().finish(3) == {}
    )


def test_personal_tensors_replace_the_models_and_are_checked(make_run):
    context, start = make_run(objective="bce", network=NARROW)
    store = context.open_store()
    model = build_network(context, store, start)
    bias = torch.full_like(model.readout.bias, 5.0)
    kept = model.readout.weight.clone()
    with_personal(model, store, store.put_state("own", {"model/readout.bias": bias, "moon/anything": torch.zeros(2)}))
    assert torch.equal(model.readout.bias, bias) and torch.equal(model.readout.weight, kept)
    with pytest.raises(UserError, match=r"do not fit the network(.|\n)*no\.such"):
        with_personal(model, store, store.put_state("bad", {"model/no.such": bias}))
    with pytest.raises(UserError, match="do not fit the network"):
        with_personal(model, store, store.put_state("shape", {"model/readout.bias": bias[:2]}))


def test_clients_evaluate_a_model_on_their_own_images(make_run, tiny_data):
    context, start = make_run(objective="bce", network=NARROW)
    found = evaluate_client_losses(context, tiny_data.ids, start, "train")
    assert list(found) == sorted(tiny_data.ids)
    images, targets = client_data(context, tiny_data.ids[1])
    model = build_network(context, context.open_store(), start)
    loss = context.problem.loss(predict_logits(context, model, images), targets)
    assert found[tiny_data.ids[1]] == (loss, len(targets))
    none = evaluate_client_losses(context, tiny_data.ids[:1], start, "val")[tiny_data.ids[0]]
    assert none[0] != none[0] and none[1] == 0  # this partition gives clients no validation images


@pytest.mark.parametrize(
    ("engine", "given", "clients", "size"),
    [
        ("local", None, 50, 1),
        ("local", 3, 50, 3),
        ("prefect", None, 50, 13),
        ("prefect", None, 4, 1),
        ("prefect", 1, 50, 1),
    ],
)
def test_clients_share_tasks_where_a_task_costs_time(engine, given, clients, size):
    settings = FederationSettings(engine=engine, workers=2, clients_per_task=given)
    assert settings.task_size(clients) == size
