"""MOON's contrastive loss: by hand, its references, and the client's state."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flows.methods import moon as method
from models.errors import UserError
from tasks.client.objectives import Loss, Reference
from tasks.client.payload import Payload
from tasks.client.regularisers import Regulariser, RegulariserContext, RegulariserSpec, moon
from tasks.client.train import train_client
from tasks.client.work import LocalWork
from tests.support.jobs import train_job
from tests.support.recorder import START, P, Recorder, bytes_of, federation, trained
from tests.support.rounds import NARROW

VALUES = {"mu": 2.0, "temperature": 0.5}


class Net(nn.Module):
    """Features W x of images [B, 1, 1, 2], standardised by a BatchNorm whose statistics would move in train mode."""

    def __init__(self, weight):
        super().__init__()
        self.linear = nn.Linear(2, 2, bias=False)
        self.norm = nn.BatchNorm1d(2, affine=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor(weight))

    def embed(self, x):
        return self.norm(self.linear(x.flatten(1)))


def local_context(model, received, state=None, values=VALUES):
    reference = Reference(copy.deepcopy(received).eval().requires_grad_(False))
    return RegulariserContext(model, (reference,), values, state or {}, {}, SimpleNamespace(), "bce")


TURN, MIRROR, SAME = [[0.0, -1.0], [1.0, 0.0]], [[-1.0, 0.0], [0.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]


def test_the_contrastive_loss_by_hand():
    # Cosines 0.6 and -1 at temperature 0.5: -log(e^1.2 / (e^1.2 + e^-2)); then equal cosines: log 2
    z = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    near, far = torch.tensor([[3.0, 4.0], [1.0, 1.0]]), torch.tensor([[-1.0, 0.0], [-5.0, 5.0]])
    want = [math.log(1 + math.exp(-2 - 1.2)), math.log(2)]
    assert moon.model_contrastive_loss(z, near, far, 0.5).tolist() == pytest.approx(want)
    assert moon.model_contrastive_loss(z[:1], near[:1], far[:1], 0.5).shape == (1,)


def test_descent_moves_towards_the_global_and_away_from_the_previous_model():
    z = torch.tensor([[1.0, 1.0]], requires_grad=True)
    towards, away = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    moon.model_contrastive_loss(z, towards, away, 0.5).sum().backward()
    assert z.grad[0, 0] < 0 < z.grad[0, 1]  # descent raises the first coordinate


@pytest.mark.parametrize("batch", [1, 3])
def test_the_references_are_the_received_and_the_previous_model(batch):
    model, previous = Net(SAME), Net(MIRROR)
    previous.norm.running_var.fill_(4.0)  # the kept model brings its own statistics
    state = {name: value.clone() for name, value in previous.state_dict().items()}
    regulariser = moon.make(local_context(model, Net(TURN), state))
    images = torch.randn(batch, 1, 1, 2, generator=torch.Generator().manual_seed(3))
    z = images.flatten(1).clone().requires_grad_()
    before = Loss(torch.tensor(10.0), {"classification": (10.0, 1.0)}, z)
    loss = regulariser.change(before, images)
    # A quarter turn has cosine 0, a mirrored vector -1, whatever its length: log(1 + e^(-1 / 0.5))
    each = math.log(1 + math.exp(-2))
    assert loss.total.item() == pytest.approx(10 + 2 * each)
    assert (loss.sums["model_contrast"][0].item(), loss.sums["model_contrast"][1]) == (
        pytest.approx(batch * each),
        batch,
    )
    assert loss.sums["classification"] == (10.0, 1.0) and loss.embedding is z
    loss.total.backward()
    assert z.grad.norm() > 0
    received, kept = regulariser.received, regulariser.previous
    for network in (received, kept):
        assert not network.training and not any(value.requires_grad for value in network.parameters())
        assert network.norm.num_batches_tracked == 0  # eval mode: statistics stay
    assert kept.norm.running_var.tolist() == [4.0, 4.0]


def test_the_kept_state_shares_no_tensor_with_the_model():
    model = Net(SAME)
    regulariser = moon.make(
        local_context(model, Net(TURN), {k: v.clone() for k, v in Net(MIRROR).state_dict().items()})
    )
    kept = regulariser.finish(1)
    assert kept.keys() == model.state_dict().keys()
    with torch.no_grad():
        model.linear.weight.fill_(9.0)
    assert kept["linear.weight"].tolist() == SAME
    assert regulariser.previous.linear.weight.tolist() == MIRROR and regulariser.received.linear.weight.tolist() == TURN


def test_the_first_training_has_no_contrastive_loss():
    loss = Loss(torch.tensor(1.0), {}, torch.ones(2, 2))
    regulariser = moon.make(local_context(Net(SAME), Net(TURN)))
    assert regulariser.change(loss, torch.ones(2, 1, 1, 2)) is loss and regulariser.finish(1)


def test_with_mu_zero_nothing_is_computed_kept_or_sent():
    loss, values = Loss(torch.tensor(1.0)), VALUES | {"mu": 0.0}
    regulariser = moon.make(RegulariserContext(Net(SAME), (), values, {}, {}, SimpleNamespace()))
    assert type(regulariser) is Regulariser and regulariser.change(loss, None) is loss and regulariser.finish(1) == {}
    assert not moon.needs_reference(values) and moon.needs_reference(VALUES)


def test_an_objective_without_embeddings_is_refused_by_name():
    regulariser = moon.make(local_context(Net(SAME), Net(TURN)))
    with pytest.raises(UserError, match=r"(?s)returns none.*bce with the network Net"):
        regulariser.change(Loss(torch.tensor(1.0)), torch.ones(2, 1, 1, 2))


def test_in_the_local_loop_the_contrastive_loss_begins_with_the_second_training(make_run, tiny_data):
    context, start = make_run(objective="bce", network=NARROW)
    store, client, references = context.open_store(), tiny_data.ids[0], [start]
    specs = (RegulariserSpec("moon", {"mu": 1.0, "temperature": 0.5}),)
    first = train_client(context, train_job(client, 1, 1, start, references, regularisers=specs))
    plain = train_client(context, train_job(client, 1, 1, start))
    assert first.model.digest == plain.model.digest and plain.state is None and "model_contrast" not in first.sums
    kept, sent = store.get_state(first.state), store.get_state(first.model)
    assert {key.removeprefix("moon/") for key in kept} == sent.keys()
    assert all(torch.equal(kept[f"moon/{key}"], value) for key, value in sent.items())
    again = train_job(client, 2, 1, start, references, private=first.state, regularisers=specs)
    second = train_client(context, again)
    without = train_client(context, train_job(client, 2, 1, start))
    assert second.model.digest != without.model.digest
    assert second.sums["model_contrast"][1] == 11 and 0 < second.mean("model_contrast") < math.log(1 + math.exp(4))
    assert store.get_state(second.state).keys() == kept.keys()


@pytest.mark.parametrize(("mu", "references"), [(2.0, (START,)), (0.0, ())])
def test_clients_need_the_global_model_as_a_reference_if_the_contrast_has_weight(mu, references):
    fed = federation(engine := Recorder(), method.Settings(mu=mu), model="resnet18")
    method.run_round(fed, fed.state)
    work = LocalWork(regularisers=(RegulariserSpec("moon", {"mu": mu, "temperature": 0.5}),))
    assert [(j.client, j.payload, j.work) for j in engine.jobs] == [
        (c, Payload.of(START, references=references), work) for c in "abcd"
    ]
    assert engine.averages == [(trained("abcd"), [0.1, 0.3, 0.2, 0.4])]
    assert bytes_of(fed, "bytes_down") == bytes_of(fed, "bytes_down_naive") == {"local training": 4 * P}
