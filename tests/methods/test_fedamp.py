"""FedAMP in rounds: cloud models, the term around them, alpha; its weights are tested in tests/tasks/server."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flows.methods.fedamp import Settings, round_alpha
from tasks.client.objectives import Loss
from tasks.client.regularisers import Regulariser, RegulariserContext, load_regulariser
from tasks.server.mixing_record import read_mixing
from tests.support.rounds import make_context, partitioned, run_round, run_rounds

SGD = {"train": {"optimizer": "sgd", "lr": 0.02}}


@pytest.fixture(scope="module")
def three(tiny_data, tmp_path_factory):
    """The tiny data in three clients."""
    return partitioned(tiny_data.dataset, tmp_path_factory.mktemp("three") / "clients", scheme="iid", clients=3)


def test_alpha_falls_by_a_factor_after_so_many_rounds():
    settings = Settings(alpha=100, alpha_decay=0.1, alpha_rounds=3)
    assert [round_alpha(settings, number) for number in (1, 3, 4, 6, 7)] == pytest.approx([100, 100, 10, 10, 1])


def test_the_term_is_around_the_cloud_model_and_not_the_start():
    # (0.5 / 2) (|3 - 1|^2 + |5 - 1|^2) = 5, gradient 0.5 (theta - u): (1, 2).
    model, cloud = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 5.0]]))
        cloud.weight.fill_(1.0)
    module = load_regulariser("fedamp")
    local = RegulariserContext(model, (SimpleNamespace(model=cloud),), {"mu": 0.5}, {}, {}, SimpleNamespace())
    loss = module.make(local).change(Loss(torch.tensor(10.0)), None)
    loss.total.backward()
    assert loss.total.item() == 15 and model.weight.grad.tolist() == [[1.0, 2.0]] and cloud.weight.grad is None
    assert module.needs_reference({"mu": 0.5}) and not module.needs_reference({"mu": 0.0})
    assert type(module.make(RegulariserContext(model, (), {"mu": 0.0}, {}, {}, SimpleNamespace()))) is Regulariser


@pytest.mark.slow
def test_with_lambda_zero_clients_train_alone(three, tmp_path):
    context, start = make_context(three, tmp_path / "run", **SGD)
    rounds = run_rounds(2, "fedamp", context, start, three.sizes, own={"lam": 0.0})
    for client, size in three.sizes.items():
        alone = run_rounds(2, "fedavg", *make_context(three, tmp_path / client, **SGD), {client: size})[-1]
        assert rounds[-1].record.state.own_model(client)[0].digest == alone.record.model.digest
    assert [stage.bytes_down for stage in rounds[1].record.stages] == [0, 0]  # nothing is needed of the server


@pytest.mark.slow
def test_only_the_cloud_model_travels_down_and_pulls(three, tmp_path):
    context, start = make_context(three, tmp_path / "run", **SGD)
    first = run_round("fedamp", context, start, three.sizes, own={"sigma": 1.0})
    free, near = (
        run_round("fedamp", context, start, three.sizes, own={"sigma": 1.0, "alpha": alpha}, before=first)
        for alpha in (1e4, 0.1)
    )
    size, store = start.bytes, context.open_store()
    assert [fed.record.stages[0].bytes_down for fed in (first, near)] == [3 * size, 3 * size]
    clouds = {client: store.get_state(first.record.state.models[f"client/{client}"]) for client in three.ids}

    def distance(fed, client):
        own = store.get_state(fed.record.state.own_model(client)[0])
        names = [name for name in own if name.startswith("readout")]
        return sum(float((own[name] - clouds[client][name]).square().sum()) for name in names)

    assert all(distance(near, client) < distance(free, client) for client in three.ids)
    record = read_mixing(store, near.record.state)
    assert record.models == three.ids and list(record.layers) == ["model"]


@pytest.mark.slow
def test_training_may_start_from_the_cloud_model(three, tmp_path):
    context, start = make_context(three, tmp_path / "run", **SGD)
    own = {"lam": 0.0, "init": "cloud", "self_weight": 0.0}
    first, second = run_rounds(2, "fedamp", context, start, three.sizes, own=own)
    client = three.ids[0]
    cloud = first.record.state.models[f"client/{client}"]
    again = run_round("fedavg", context, cloud, {client: three.sizes[client]}, number=2)
    assert again.record.model.digest == second.record.state.own_model(client)[0].digest
