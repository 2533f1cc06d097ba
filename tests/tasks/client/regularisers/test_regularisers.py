"""The regularisers of FedProx and FedHybrid: by hand, fixed reference weights, parameters only, in the local loop."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tasks.client.objectives import Loss
from tasks.client.regularisers import (
    REGULARISERS,
    Regulariser,
    RegulariserContext,
    RegulariserSpec,
    fedhybrid,
    fedprox,
    load_regulariser,
)
from tasks.client.train import train_client
from tests.support.jobs import train_job
from tests.support.rounds import NARROW

VALUES = {"prox": {"mu": 0.5}, "dual": {"mu": 0.5, "scale": 2.0}, "ditto": {"lam": 0.5}, "fedala": {"layers": []}}


class Tiny(nn.Module):
    """Two trained tensors, a frozen one, and a buffer that counts."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.b = nn.Parameter(torch.tensor([[3.0]]))
        self.frozen = nn.Parameter(torch.tensor([7.0]), requires_grad=False)
        self.register_buffer("seen", torch.tensor([5.0]))


def local_context(model, values, state=None):
    return RegulariserContext(model, (), values, state or {}, {}, SimpleNamespace())


def moved(name, values, state=None):
    """A regulariser made at a = (1, 2), b = 3 whose model has then gone to a = (2, 0), b = 4; all else moved too."""
    model = Tiny()
    regulariser = load_regulariser(name).make(local_context(model, values, state))
    with torch.no_grad():
        model.a.copy_(torch.tensor([2.0, 0.0]))
        model.b.fill_(4.0)
        model.frozen.fill_(100.0)
        model.seen.fill_(100.0)
    return model, regulariser


def test_the_proximal_term_by_hand():
    # (0.5 / 2) * (1^2 + 2^2 + 1^2) = 1.5, not the norm's sqrt(6) / 4; the gradient is 0.5 * (theta - W)
    model, regulariser = moved("prox", VALUES["prox"])
    before = Loss(torch.tensor(10.0), {"classification": (torch.tensor(10.0), 1.0)})
    loss = regulariser.change(before, None)
    loss.total.backward()
    assert loss.total.item() == 11.5 and loss.sums["proximal"] == (1.5, 1.0)
    assert loss.sums["classification"] == before.sums["classification"] and before.total.item() == 10.0
    assert model.a.grad.tolist() == [0.5, -1.0] and model.b.grad.tolist() == [[0.5]]
    assert model.frozen.grad is None and regulariser.finish(3) == {}


def test_the_reference_weights_stay_at_the_received_model():
    model, regulariser = moved("prox", VALUES["prox"])
    with torch.no_grad():  # back at the start the term is 0 again: nothing moved along
        model.a.copy_(torch.tensor([1.0, 2.0]))
        model.b.fill_(3.0)
    assert regulariser.change(Loss(torch.tensor(0.0)), None).total == 0.0


def test_with_mu_zero_the_loss_is_returned_unchanged():
    loss = Loss(torch.tensor(1.0))
    regulariser = fedprox.make(local_context(Tiny(), {"mu": 0.0}))
    assert type(regulariser) is Regulariser and regulariser.change(loss, None) is loss and regulariser.finish(1) == {}


def test_the_dual_term_by_hand():
    # 2 * 10 - (1 * 2 + 1 * 0 + 2 * 4) + 1.5 = 11.5; gradient -y + mu (x - x_0)
    state = {"a": torch.tensor([1.0, 1.0]), "b": torch.tensor([[2.0]])}
    model, regulariser = moved("dual", VALUES["dual"], state)
    loss = regulariser.change(Loss(torch.tensor(10.0), {"classification": (10.0, 1.0)}), None)
    loss.total.backward()
    assert loss.total.item() == 11.5
    assert loss.sums == {"classification": (10.0, 1.0), "dual": (-10.0, 1.0), "proximal": (1.5, 1.0)}
    assert model.a.grad.tolist() == [-0.5, -2.0] and model.b.grad.tolist() == [[-1.5]]
    # y + mu (x_0 - x): (1, 1) + 0.5 (-1, 2) and 2 - 0.5
    after = regulariser.finish(3)
    assert {name: value.tolist() for name, value in after.items()} == {"a": [0.5, 2.0], "b": [[1.5]]}
    assert not any(value.requires_grad for value in after.values())


def test_duals_are_zero_at_first():
    _, regulariser = moved("dual", VALUES["dual"])
    assert regulariser.change(Loss(torch.tensor(0.0)), None).sums["dual"] == (0.0, 1.0)
    assert regulariser.finish(1)["b"].tolist() == [[-0.5]]


def test_at_the_local_minimum_the_dual_is_the_gradient():
    # f(x) = (3/2) (x - 4)^2, x_0 = 1, y = 2, mu = 1: 3 (x - 4) - 2 + (x - 1) = 0 gives x = 15/4, f'(x) = -3/4
    x = torch.tensor(15 / 4)
    assert fedhybrid.next_dual(torch.tensor(2.0), torch.tensor(1.0), x, 1.0) == 3 * (x - 4)


def test_every_regulariser_declares_whether_it_needs_the_global_model():
    need = {
        name: load_regulariser(name).needs_reference(VALUES.get(name, {"mu": 1.0, "temperature": 0.5}))
        for name in REGULARISERS
    }
    assert {name: need[name] for name in ("prox", "dual", "moon")} == {"prox": False, "dual": False, "moon": True}
    assert all(load_regulariser(name).DESCRIPTION for name in REGULARISERS)


@pytest.mark.parametrize("name", ["prox", "dual"])
def test_in_the_local_loop_a_large_mu_keeps_the_model_near_its_start(make_run, tiny_data, name):
    sgd = {"optimizer": "sgd", "lr": 0.001, "grad_clip": None, "epochs": 4}
    context, start = make_run(objective="bce", network=NARROW, train=sgd)
    store, begin = context.open_store(), context.open_store().get_state(start)

    def distance(mu):
        spec = RegulariserSpec(name, VALUES[name] | {"mu": mu, "scale": 1.0})
        update = train_client(context, train_job(tiny_data.ids[0], 1, 1, start, regularisers=(spec,)))
        state = store.get_state(update.model)
        return sum((state[k] - begin[k]).square().sum() for k in begin if "running" not in k and "num" not in k)

    assert distance(500.0) < 0.7 * distance(1e-4)


def test_duals_stay_at_their_client(make_run, tiny_data):
    context, start = make_run(objective="bce", network=NARROW, bn_policy="local")
    store, client = context.open_store(), tiny_data.ids[0]
    spec = RegulariserSpec("dual", {"mu": 0.1, "scale": 1.0})
    first = train_client(context, train_job(client, 1, 1, start, regularisers=(spec,)))
    sent, kept, begin = store.get_state(first.model), store.get_state(first.state), store.get_state(start)
    assert sent.keys() == begin.keys()
    names = {key.removeprefix("dual/") for key in kept if key.startswith("dual/")}
    assert names == {key for key in begin if "running" not in key and "num" not in key}
    assert {key for key in kept if not key.startswith("dual/")} == {f"model/{key}" for key in begin.keys() - names}
    for key in names:  # the first dual is mu (x_0 - x_1)
        assert torch.allclose(kept[f"dual/{key}"], 0.1 * (begin[key] - sent[key]), atol=1e-7), key
    second = train_client(context, train_job(client, 2, 1, start, private=first.state, regularisers=(spec,)))
    sent, again = store.get_state(second.model), store.get_state(second.state)
    for key in names:
        want = kept[f"dual/{key}"] + 0.1 * (begin[key] - sent[key])
        assert torch.allclose(again[f"dual/{key}"], want, atol=1e-7), key
