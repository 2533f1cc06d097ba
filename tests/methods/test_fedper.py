"""FedPer: what stays with a client, what is averaged, and whose layers are evaluated."""

import math

import pytest
import torch

from flows.federation.evaluation import evaluate_round
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.own_models import own_tensors
from tests.support.rounds import make_context, partitioned, run_round, run_rounds

pytestmark = pytest.mark.slow


@pytest.fixture
def three(tiny_data, tmp_path):
    """Three clients with local test sets, and a run on them."""
    local = {"scheme": "local", "test": 0.25}
    data = partitioned(tiny_data.dataset, tmp_path / "clients", scheme="iid", clients=3, local=local)
    return data, *make_context(data, tmp_path / "run", train={"lr": 0.01}, evaluation=EvaluationSettings(every=1))


def tensors(fed, ref):
    return fed.context.open_store().get_state(ref)


@pytest.mark.parametrize("personal", [["readout."], ["readout.", "backbone.layer4."]])
def test_the_base_is_averaged_and_the_personal_layers_stay(three, personal):
    data, context, start = three
    first, second = run_rounds(2, "fedper", context, start, data.sizes, own={"personal": personal})
    for fed in (first, second):
        trained, after = [tensors(fed, u.model) for u in fed.record.updates[1]], tensors(fed, fed.record.model)
        weights, begun = list(fed.record.weights.values()), tensors(fed, start)
        for name, value in after.items():
            if name.startswith(tuple(personal)):
                assert torch.equal(value, begun[name]), "the global model keeps its first one"
                assert all(name not in state for state in trained)
            elif value.is_floating_point():
                mean = sum(w * state[name].double() for w, state in zip(weights, trained, strict=True))
                assert torch.allclose(value.double(), mean, atol=1e-7), name
    heads = [tensors(fed, fed.state.private[data.ids[0]])["model/readout.bias"] for fed in (first, second)]
    assert not torch.equal(*heads), "the second training goes on from the client's own"


def test_a_clients_model_is_the_global_base_with_its_own_layers(three):
    data, context, start = three
    fed = run_rounds(2, "fedper", context, start, data.sizes)[-1]
    shared, own = tensors(fed, fed.record.model), {}
    for client in data.ids:
        own[client] = own_tensors(context.open_store(), fed.record.state, client)
        kept = tensors(fed, fed.record.state.private[client])
        assert kept.keys() == {"model/readout.weight", "model/readout.bias"}
        for name, value in own[client].items():
            assert torch.equal(value, kept.get(f"model/{name}", shared[name])), name
    assert len({tuple(state["readout.bias"].tolist()) for state in own.values()}) == 3
    evaluate_round(fed.engine, context, fed.settings, fed.record, data.sizes)
    assert sorted(fed.record.per_client) == sorted(data.ids)
    assert all(math.isfinite(row["local/loss"]) for row in fed.record.per_client.values())
    losses = {row["global/loss"] for row in fed.record.per_client.values()}
    assert len(losses) == 3, "each client's own model is evaluated on the pooled test set"


def test_an_absent_client_keeps_its_layers(three):
    data, context, start = three
    first = run_round("fedper", context, start, data.sizes)
    second = run_round("fedper", context, start, data.sizes, before=first, clients_per_round=1)
    (present,) = second.record.participants
    before, after = first.record.state.private, second.record.state.private
    assert {c for c in data.ids if before[c] != after[c]} == {present}
    assert second.record.state.personalised == sorted(data.ids)


def test_without_personal_layers_no_client_has_a_model_of_its_own(three):
    data, context, start = three
    fed = run_round("fedper", context, start, data.sizes, own={"personal": []})
    plain = run_round("fedavg", context, start, data.sizes)
    assert fed.record.model.digest == plain.record.model.digest and fed.record.state == plain.record.state
