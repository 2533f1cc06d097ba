"""Ditto: the term by hand; lambda 0 is local training beside FedAvg, bit for bit; what travels; absent clients."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flows.settings.files import load_settings
from models.errors import UserError
from tasks.client.objectives import Loss, Reference
from tasks.client.regularisers import Regulariser, RegulariserContext, ditto
from tasks.core.round_state import client_model
from tests.support.plain_training import differing, train_plainly
from tests.support.rounds import PLAIN_SGD, make_context, run_round, run_rounds


class Point(nn.Module):
    """One trained vector, one frozen one and a buffer."""

    def __init__(self, x):
        super().__init__()
        self.x = nn.Parameter(torch.tensor(x))
        self.frozen = nn.Parameter(torch.tensor([7.0]), requires_grad=False)
        self.register_buffer("seen", torch.tensor([5.0]))


def local(v, w, lam):
    references = (Reference(Point(w).requires_grad_(False)),) if w else ()
    return RegulariserContext(Point(v), references, {"lam": lam}, {}, {}, SimpleNamespace())


def test_the_term_pulls_to_the_global_model_by_hand():
    """v = (3, 1), W = (1, 2), lambda 0.5: 0.25 (2^2 + 1^2) = 1.25, gradient 0.5 (2, -1); v starts away from W."""
    context = local([3.0, 1.0], [1.0, 2.0], 0.5)
    loss = ditto.make(context).change(Loss(torch.tensor(10.0)), torch.zeros(1))
    loss.total.backward()
    assert loss.total.item() == 11.25 and loss.sums["proximal"] == (1.25, 1.0)
    assert context.model.x.grad.tolist() == [1.0, -0.5] and context.model.frozen.grad is None


def test_lambda_zero_needs_no_global_model_and_changes_nothing():
    neutral = ditto.make(local([1.0], None, 0.0))
    loss = Loss(torch.tensor(1.0))
    assert type(neutral) is Regulariser and neutral.change(loss, None) is loss
    assert ditto.needs_reference({"lam": 0.1}) and not ditto.needs_reference({"lam": 0.0})


def own_models(fed, clients):
    store = fed.context.open_store()
    return {c: store.get_state(fed.record.state.models[client_model(c)]) for c in clients}


@pytest.mark.slow
@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_two_rounds_are_fedavg_and_local_training_towards_its_models(tiny_data, tmp_path, lam):
    """With lambda 0 the personal models are trained locally, as if there were no federation, bit for bit."""
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD)
    rounds = run_rounds(2, "ditto", context, start, tiny_data.sizes, own={"lam": lam})
    plain = run_rounds(2, "fedavg", context, start, tiny_data.sizes)
    assert [fed.record.model.digest for fed in rounds] == [fed.record.model.digest for fed in plain]
    store, shared = context.open_store(), start
    own = dict.fromkeys(tiny_data.ids, store.get_state(start))
    for number, fed in enumerate(rounds, 1):
        near = store.get_state(shared) if lam else None
        own = {c: train_plainly(context, own[c], c, number, 2, near=near, lam=lam) for c in tiny_data.ids}
        for client, model in own_models(fed, tiny_data.ids).items():
            assert differing(model, own[client]) == []
            assert fed.record.state.own_model(client) == (fed.record.state.models[client_model(client)], ())
        shared = fed.record.model


@pytest.mark.slow
def test_a_larger_lambda_keeps_personal_models_nearer_to_the_global_one(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD)
    begun, distances = context.open_store().get_state(start), []
    for lam in (0.0, 1.0, 10.0):
        fed = run_round("ditto", context, start, tiny_data.sizes, own={"lam": lam, "personal_epochs": 4})
        models = own_models(fed, tiny_data.ids).values()
        distances.append(sum(float((state["readout.weight"] - begun["readout.weight"]).norm()) for state in models))
    assert distances[0] > distances[1] > distances[2] > 0


@pytest.mark.slow
def test_personal_models_cost_no_bytes_and_absent_clients_keep_theirs(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    first = run_round("ditto", context, start, tiny_data.sizes, own={"lam": 1.0})
    second = run_round("ditto", context, start, tiny_data.sizes, own={"lam": 1.0}, before=first, clients_per_round=1)
    for fed, clients in ((first, 4), (second, 1)):
        assert sum(log.bytes_down for log in fed.record.stages) == clients * start.bytes
        assert sum(log.bytes_up for log in fed.record.stages) == clients * start.bytes
    (present,) = second.record.participants
    before, after = (own_models(fed, tiny_data.ids) for fed in (first, second))
    assert {c for c in tiny_data.ids if differing(before[c], after[c])} == {present}
    assert second.record.state.personalised == sorted(tiny_data.ids)


def test_statistics_that_stay_at_clients_are_refused():
    with pytest.raises(UserError, match="would share its BatchNorm statistics"):
        load_settings(None, ["tiny"], ["method.name=ditto", "federation.bn_policy=local"])
    load_settings(None, ["tiny"], ["method.name=ditto", "federation.bn_policy=total_variance"])
