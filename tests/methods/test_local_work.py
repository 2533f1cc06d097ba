"""What a method may ask of a client beside a regulariser: which parameters train, what stays, how long."""

import pytest
import torch

from models.errors import UserError
from tasks.client.local_data import SERVER
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.update_transforms.clip_norm import Settings as ClipNorm
from tests.support import carried
from tests.support.rounds import make_context, make_federation

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tiny_data, tmp_path):
    """``run(work, state=None, number=1)``: two clients train once; the federation and their updates."""
    context, start = make_context(tiny_data, tmp_path / "run", train={"lr": 0.01})

    def train(work, state=None, number=1):
        clients = dict(list(tiny_data.sizes.items())[:2])
        fed = make_federation(context, None, clients, number=number, state=state or start)
        updates = fed.train(fed.sample(), Payload.of(fed.state.global_model), work, stage=1, name="training")
        return fed, updates

    return train


def states(fed, updates):
    return [fed.context.open_store().get_state(update.model) for update in updates]


def test_only_the_named_parameters_train(run):
    fed, updates = run(LocalWork(trainable=("readout.",)))
    start = fed.context.open_store().get_state(fed.state.global_model)
    for state in states(fed, updates):
        assert state.keys() == start.keys()
        changed = {name for name in state if not torch.equal(state[name], start[name])}
        parameters = {name for name in changed if not name.rpartition(".")[2].startswith(("running", "num_batches"))}
        assert parameters and all(name.startswith("readout.") for name in parameters)


def test_a_client_without_a_parameter_to_train_drops_out(run):
    with pytest.raises(UserError, match="no parameter is left to train"):
        run(LocalWork(trainable=()))


def test_what_a_client_keeps_is_not_sent_and_its_next_training_starts_with_it(run):
    work = LocalWork(keeps=("readout.",), steps=1)
    fed, updates = run(work)
    store, start = fed.context.open_store(), fed.state.global_model
    assert all(not any(name.startswith("readout.") for name in state) for state in states(fed, updates))
    kept = [store.get_state(fed.state.private[u.client]) for u in updates]
    assert all(own.keys() == {"model/readout.weight", "model/readout.bias"} for own in kept)
    mean = fed.aggregate(updates, start, name="average")
    for name, value in store.get_state(mean).items():  # the head as it was sent, the rest averaged
        assert torch.equal(value, store.get_state(start)[name]) == name.startswith("readout."), name
    client = updates[0].client
    fed.state.own[client] = "global"
    assert fed.state.own_model(client) == (start, (fed.state.private[client],))
    again, later = run(LocalWork(keeps=("readout.",), trainable=("backbone.",), steps=1), fed.state, number=2)
    frozen = store.get_state(again.state.private[later[0].client])
    assert all(torch.equal(value, kept[0][name]) for name, value in frozen.items())


def test_what_stays_at_the_client_costs_nothing_and_is_not_transformed(tiny_data, tmp_path):
    clip = (ClipNorm(name="clip_norm", max_norm=1e-4),)
    trained, sent = {}, {}
    for name, transforms in (("plain", {}), ("clipped", {"client_transforms": clip, "server_transforms": clip})):
        context, start = make_context(tiny_data, tmp_path / name, train={"lr": 0.01}, **transforms)
        fed = make_federation(context, None, tiny_data.sizes, state=start)
        clients, payload = fed.sample(), Payload.of(start, at_client=True)
        both = {c: LocalWork(steps=1, stays=c != clients[0]) for c in clients}
        updates = fed.train(clients, payload, both, stage=1, name="training")
        assert [u.client for u in updates] == clients and fed.record.stages[0].bytes_up == start.bytes
        assert [u.bytes_up for u in updates[1:]] == [0] * (len(clients) - 1)
        trained[name], sent[name] = [u.model.digest for u in updates[1:]], updates[0].model.digest
    assert trained["plain"] == trained["clipped"] and sent["plain"] != sent["clipped"]


@pytest.mark.parametrize(("work", "steps"), [({"steps": 3}, 3), ({"epochs": 3}, 6), ({}, 2)])
def test_epochs_or_steps(run, work, steps):
    assert {update.steps for update in run(LocalWork(**work))[1]} == {steps}


def test_several_regularisers_change_the_loss_one_after_the_other(run):
    one = RegulariserSpec("prox", {"mu": 1.0})
    both = LocalWork(regularisers=(one, RegulariserSpec("dual", {"mu": 0.5, "scale": 1.0})))
    fed, updates = run(both)
    assert all({"proximal", "dual", "classification"} <= u.sums.keys() for u in updates)
    kept = fed.context.open_store().get_state(fed.state.private[updates[0].client])
    assert kept and all(name.startswith("dual/") for name in kept)


def test_a_stage_that_is_not_committed_leaves_only_its_cost(run, tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "other")
    fed = make_federation(context, None, tiny_data.sizes, state=start)
    work = LocalWork(regularisers=(RegulariserSpec("dual", {"mu": 0.5, "scale": 1.0}),))
    updates = fed.train(fed.sample(), Payload.of(start), work, stage=2, name="probe", commit=False)
    assert len(updates) == len(tiny_data.ids) and fed.record.updates == {} and fed.state.private == {}
    assert fed.record.stages[0].bytes_up == sum(u.model.bytes for u in updates)


def test_the_server_without_labelled_images_cannot_train(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    fed = make_federation(context, None, tiny_data.sizes, state=start)
    with pytest.raises(UserError, match="the server has no labelled images"):
        fed.train([SERVER], Payload.of(start), stage=1, name="training at the server")


@pytest.mark.parametrize(("field", "wrong"), [("keeps", "readout.bais"), ("trainable", "readot.")])
def test_a_prefix_that_no_tensor_has_is_refused_before_a_client_trains(tiny_data, tmp_path, field, wrong):
    context, start = make_context(tiny_data, tmp_path / "run")
    fed = make_federation(context, None, tiny_data.sizes, state=start, name="site_bias")
    before = sorted(path for path in (tmp_path / "run").rglob("*"))
    with pytest.raises(UserError, match=f"method site_bias names a tensor in LocalWork.{field} that") as caught:
        fed.train(
            fed.sample(), Payload.of(start), LocalWork(**{field: ("readout.", wrong)}), stage=1, name="local training"
        )
    assert caught.value.found == wrong and caught.value.where == f"round 1, LocalWork.{field}"
    assert str(caught.value.expected).startswith("the beginning of one of: readout.bias, ")
    assert before == sorted(path for path in (tmp_path / "run").rglob("*")) and fed.record.stages == []


def test_to_keep_all_tensors_is_refused_before_a_client_trains(run):
    with pytest.raises(UserError, match="nothing is left to send: method tested keeps all tensors") as caught:
        run(LocalWork(keeps=("backbone.", "readout.", "")))
    assert caught.value.where == "round 1, LocalWork.keeps"


def test_transforms_leave_alone_what_a_client_keeps(tiny_data, tmp_path):
    kept, sent = [], []
    for name, transforms in (("plain", ()), ("clipped", (ClipNorm(name="clip_norm", max_norm=1e-4),))):
        context, start = make_context(tiny_data, tmp_path / name, train={"lr": 0.01}, client_transforms=transforms)
        fed = make_federation(context, None, tiny_data.sizes, state=start)
        work = LocalWork(keeps=("readout.",), steps=1)
        (update, *_) = fed.train(fed.sample(), Payload.of(start), work, stage=1, name="training")
        store = context.open_store()
        kept.append(store.get_state(fed.state.private[update.client]))
        sent.append(store.get_state(update.model))
    assert all(torch.equal(value, kept[1][name]) for name, value in kept[0].items())
    assert any(not torch.equal(value, sent[1][name]) for name, value in sent[0].items())


def test_a_transform_gets_what_it_kept_of_the_clients_last_update(tiny_data, tmp_path, monkeypatch):
    carried.register(monkeypatch)
    rounding = carried.Settings(tensor="readout.bias")
    context, start = make_context(tiny_data, tmp_path / "rounded", client_transforms=(rounding,))
    plain, _ = make_context(tiny_data, tmp_path / "plain")
    store, others, rest, state = context.open_store(), plain.open_store(), 0.0, start
    for number in (1, 2):
        fed = make_federation(context, None, tiny_data.sizes, number=number, state=state)
        (update, *_) = fed.train(fed.sample(), Payload.of(start), stage=1, name="training")
        same = make_federation(plain, None, tiny_data.sizes, number=number, state=start)
        (untouched, *_) = same.train(same.sample(), Payload.of(start), stage=1, name="training")
        sent = store.get_state(update.model)["readout.bias"]
        kept = store.get_state(fed.state.private[update.client])
        trained = others.get_state(untouched.model)["readout.bias"]
        assert kept.keys() == {"transforms/0-carried/rest"} and torch.equal(sent, sent.round())
        assert torch.allclose(sent + kept["transforms/0-carried/rest"], trained + rest, atol=1e-6)
        rest, state = kept["transforms/0-carried/rest"], fed.state
    assert rest.abs().max() > 0


def test_what_a_later_training_does_not_renew_stays_with_the_client(run):
    fed, updates = run(LocalWork(keeps=("readout.",), steps=1))
    client, store = updates[0].client, fed.context.open_store()
    before = store.get_state(fed.state.private[client])
    dual = RegulariserSpec("dual", {"mu": 0.5, "scale": 1.0})
    again, _ = run(LocalWork(regularisers=(dual,), steps=1), fed.state, number=2)
    after = store.get_state(again.state.private[client])
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert any(name.startswith("dual/") for name in after)
