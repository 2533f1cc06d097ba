"""Rounds with real training in threads: order, workers, chunks, failures, BatchNorm."""

import math
import uuid
from types import SimpleNamespace

import pytest
import torch

from flows.engine.engines import LocalEngine
from flows.methods import load_method
from models.errors import UserError
from tasks.client import train_chunk
from tasks.client.batches import TrainingError
from tasks.core.round_state import RoundState
from tests.support.rounds import NARROW, make_federation

pytestmark = pytest.mark.slow


@pytest.fixture
def play(make_run, tiny_data):
    """``play("fedavg", name, workers=2, ...)`` runs one round in its own store: (record, model's digest, store)."""

    def run(method, name="run", workers=1, order=1, changes=None, number=1, private=None, **federation):
        plain = {} if method == "fmman" else {"objective": "bce", "network": NARROW}
        context, start = make_run(name, **plain, **(changes or {}))
        clients = dict.fromkeys(tiny_data.ids[::order], 11)
        module, state = load_method(method), RoundState.starting_from(start)
        state.private = dict(private or {})
        options = {"engine": LocalEngine(workers), "workers": workers, "number": number, "state": state, **federation}
        fed = make_federation(context, module.Settings(), clients, **options)
        fed.record.state = module.run_round(fed, fed.state)
        return fed.record, fed.record.model.digest, context.open_store()

    return run


@pytest.fixture
def quick(monkeypatch):
    """No waiting before a retry; returns the waits that would have been."""
    waits = []
    monkeypatch.setattr("flows.engine.engines.time.sleep", waits.append)
    return waits


def failing(monkeypatch, plan):
    """Makes ``train_client`` fail: client -> list of errors, one for each try, then it works. Returns the tries."""
    tries, real = [], train_chunk.train_client

    def train(context, job):
        tries.append(job.client)
        left = plan.get(job.client, [])
        if left:
            raise left.pop(0)
        return real(context, job)

    monkeypatch.setattr(train_chunk, "train_client", train)
    return tries


def test_workers_chunks_and_order_do_not_change_the_model(play):
    record, digest, _ = play("fmman", "one")
    other, again, _ = play("fmman", "two", workers=2, order=-1, clients_per_task=3)
    assert digest == again
    one, two = record.state, other.state
    assert one.cluster_of == two.cluster_of and record.weights == other.weights
    assert [ref.digest for ref in one.cluster_models] == [ref.digest for ref in two.cluster_models]
    assert sorted(one.cluster_of) == ["client-000", "client-001", "client-002", "client-003"]
    assert math.fsum(record.weights.values()) == pytest.approx(1.0)


def test_a_repeated_round_reuses_all_stored_results(play, monkeypatch):
    record, digest, _ = play("fedavg")
    monkeypatch.setattr("tasks.client.local_training.LocalTraining.run", lambda *_: pytest.fail("it trains again"))
    again, second, _ = play("fedavg")
    assert second == digest and again.updates == record.updates


def test_the_mean_of_updates_has_the_tensors_of_the_start_model(play, tiny_data):
    record, digest, store = play("fedavg")
    states = [store.get_state(update.model) for update in record.updates[1]]
    mean = next(store.get_state(ref) for ref in refs_of(store) if ref.digest == digest)
    for name, value in mean.items():
        own = torch.stack([state[name] for state in states])
        assert value.dtype == states[0][name].dtype
        if not value.is_floating_point():
            assert value == own.max()
        else:  # four clients of eleven images: equal weights
            assert torch.allclose(value, own.double().mean(dim=0).float(), atol=1e-7), name
    assert [update.client for update in record.updates[1]] == list(tiny_data.ids)


def refs_of(store):
    from tasks.core.records import ModelRef

    names = [n for n in store.names("updates") if n.startswith("aggregated") and n.endswith(".json")]
    return [ModelRef.of(store.read_json(f"updates/{name}")["models"]["global"]) for name in names]


def test_a_client_that_fails_once_is_retried(play, quick, monkeypatch, tiny_data):
    tries = failing(monkeypatch, {tiny_data.ids[1]: [OSError("share not mounted")]})
    record, digest, _ = play("fedavg", "flaky")
    assert tries.count(tiny_data.ids[1]) == 2 and len(tries) == 5
    assert record.dropped == [] and quick == [1.0]
    monkeypatch.undo()
    assert digest == play("fedavg", "calm")[1]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_client_that_always_fails_is_dropped_and_the_others_count(play, quick, monkeypatch, tiny_data, size):
    bad = tiny_data.ids[1]
    tries = failing(monkeypatch, {bad: [RuntimeError("out of memory")] * 99})
    record, _, _ = play("fedavg", clients_per_task=size)
    dropped = [(d.client, d.stage, d.reason.partition(" (")[0]) for d in record.dropped]  # then the place in the code
    assert dropped == [(bad, 1, "RuntimeError: out of memory")]
    assert [u.client for u in record.updates[1]] == [c for c in tiny_data.ids if c != bad]
    assert tries.count(bad) == 3 and quick == [1.0, 5.0]
    assert record.weights == pytest.approx(dict.fromkeys([u.client for u in record.updates[1]], 1 / 3))


def test_a_failure_that_would_repeat_is_not_retried(play, quick, monkeypatch, tiny_data):
    bad = tiny_data.ids[2]
    tries = failing(monkeypatch, {bad: [TrainingError("the loss is not finite")] * 9})
    record, _, _ = play("fedavg", clients_per_task=2)
    assert [(d.client, d.reason) for d in record.dropped] == [(bad, "the loss is not finite")]
    assert tries.count(bad) == 1 and quick == []


def test_every_dropped_client_of_a_chunk_has_its_own_reason(play, quick, monkeypatch, tiny_data):
    first, second = tiny_data.ids[:2]
    plan = {first: [TrainingError("the loss is not finite")] * 9, second: [OSError("disk")] * 9}
    failing(monkeypatch, plan)
    record, _, _ = play("fedavg", clients_per_task=2)
    reasons = {d.client: d.reason for d in record.dropped}
    assert reasons == {first: "the loss is not finite", second: "OSError: disk"}


def test_too_few_clients_end_the_round_with_names_and_reasons(play, quick, monkeypatch, tiny_data):
    plan = {client: [OSError("disk")] * 9 for client in tiny_data.ids[:3]}
    failing(monkeypatch, plan)
    with pytest.raises(UserError, match="too few clients") as caught:
        play("fedavg")
    assert all(f"{client}: OSError: disk" in str(caught.value) for client in tiny_data.ids[:3])
    assert "at least 2 of 4" in str(caught.value) and "1; " in str(caught.value)


def test_no_finite_loss_anywhere_ends_the_round(play):
    with pytest.raises(UserError, match=r"too few clients(?s:.)*loss is not finite"):
        play("fedavg", changes={"train": {"optimizer": "sgd", "lr": 1e38, "grad_clip": None, "epochs": 3}})


def test_bn_local_states_go_from_round_to_round(play, tiny_data):
    first, _, store = play("fedavg", changes={"bn_policy": "local"})
    assert sorted(first.state.private) == list(tiny_data.ids)
    second, _, _ = play("fedavg", changes={"bn_policy": "local"}, number=2, private=first.state.private)
    for client in tiny_data.ids:
        state = store.get_state(second.state.private[client])
        steps = sum(u.steps for r in (first, second) for u in r.updates[1] if u.client == client)
        assert {int(v) for n, v in state.items() if n.endswith("num_batches_tracked")} == {steps}


@pytest.mark.parametrize(("error", "waits"), [(OSError("disk"), [1.0]), (UserError("a wrong setting"), [])])
def test_user_errors_are_not_retried(quick, error, waits):
    def fails():
        raise error

    engine, context = LocalEngine(workers=2), SimpleNamespace(open_store=fails)
    with pytest.raises(type(error), match=str(error)):
        engine.run("transform-updates", "title", context, [], None, 1, 1)
    assert quick == waits
    one, two = engine.map("initialise-model", [("one", (context,)), ("two", (context,))])
    assert one.error is two.error is error and one.value is None


def test_a_store_can_be_a_url(play):
    assert play("fedavg", f"memory://{uuid.uuid4()}")[1] == play("fedavg", "disk")[1]
