"""FedALA: mixture and weights by hand, whole rounds written out, what stays with absent clients."""

import pytest
import torch

from models.errors import UserError
from tasks.client.local_data import client_data
from tasks.client.regularisers.fedala import converged, mixed, next_weight
from tasks.core.network import build_network
from tasks.core.randomness import numpy_generator
from tasks.core.round_state import client_model
from tests.support.plain_training import differing, train_plainly
from tests.support.rounds import make_context, run_round, run_rounds

LAYERS = ("readout.",)


def test_the_mixture_and_a_step_of_its_weights_by_hand():
    own, received = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, 2.0, -1.0])
    weight = torch.tensor([1.0, 0.5, 0.25])
    assert mixed(own, received, weight).tolist() == [3.0, 2.0, 2.0]
    # gap (2, 0, -4), gradient (0.25, 9, 0.125): the steps are 0.5, 0 and -0.5
    gap, gradient = received - own, torch.tensor([0.25, 9.0, 0.125])
    assert next_weight(weight, gradient, gap, 1.0).tolist() == [0.5, 0.5, 0.75]
    assert next_weight(weight, gradient, gap, 4.0).tolist() == [0.0, 0.5, 1.0], "weights stay within 0 and 1"


def test_the_ends_are_the_clients_and_the_global_model():
    own, received = torch.randn(4), torch.randn(4)
    assert torch.equal(mixed(own, received, torch.zeros(4)), own)
    assert torch.allclose(mixed(own, received, torch.ones(4)), received)


def test_learning_ends_when_the_last_losses_hardly_change():
    """Of (1, 3) the standard deviation over n is 1; it counts only once there are more losses than the window."""
    assert not converged([2.0, 2.0], 2, 0.1) and converged([9.0, 2.0, 2.0], 2, 0.1)
    assert not converged([0.0, 1.0, 3.0], 2, 1.0) and converged([0.0, 1.0, 3.0], 2, 1.001)


def learn(context, state, own, weights, client, number, values):
    """The learning of the weights written out: (the mixed tensors by name, the weights)."""
    model = build_network(context, context.open_store())
    model.load_state_dict(state)
    model.train()
    images, targets = client_data(context, client)
    images, targets = torch.from_numpy(images[:].copy()).float() / 255, torch.from_numpy(targets).float()
    losses, first, names = [], weights is None, list(own)
    weights = weights or {name: torch.ones_like(own[name]) for name in names}
    while True:
        order = numpy_generator(context.seed, "batch order before training", number, 1, client)
        rows, total = order.permutation(len(images)), []
        for batch in [rows[:8], rows[8:]][: 1 if values["share"] * len(images) <= 8 else 2]:
            for name in names:
                model.get_parameter(name).data = own[name] + (state[name] - own[name]) * weights[name]
            model.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(images[batch]), targets[batch])
            loss.backward()
            total.append(loss.item())
            for name in names:
                step = values["eta"] * model.get_parameter(name).grad * (state[name] - own[name])
                weights[name] = (weights[name] - step).clamp(0, 1)
        losses.append(sum(total) / len(total))
        last = torch.tensor(losses[-values["window"] :], dtype=torch.float64)
        done = len(losses) > values["window"] and float(last.std(unbiased=False)) < values["threshold"]
        if done or not first or len(losses) == values["max_passes"]:
            return {name: own[name] + (state[name] - own[name]) * weights[name] for name in names}, weights


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_three_rounds_are_those_of_the_paper_written_out(tiny_data, tmp_path, share):
    """Round 1 trains from W; round 2 learns the weights until they converge; round 3 takes one more pass."""
    context, start = make_context(tiny_data, tmp_path / "run", train={"lr": 0.01})
    values = {"eta": 20.0, "share": share, "threshold": 1e-3, "window": 3, "max_passes": 12}
    rounds = run_rounds(3, "fedala", context, start, tiny_data.sizes, own=values)
    store = context.open_store()
    shared, client = store.get_state(start), tiny_data.ids[1]
    own, weights = None, None
    for number, fed in enumerate(rounds, 1):
        begun = shared
        if own is not None:
            mixture, weights = learn(context, shared, own, weights, client, number, values)
            begun = shared | mixture
        trained = train_plainly(context, begun, client, number)
        update = next(u for u in fed.record.updates[1] if u.client == client)
        assert differing(store.get_state(update.model), trained) == []
        assert differing(store.get_state(fed.record.state.models[client_model(client)]), trained) == []
        own = {name: value for name, value in trained.items() if name.startswith(LAYERS)}
        kept = store.get_state(fed.record.state.private[client])
        expected = {f"fedala/own/{name}": value for name, value in own.items()}
        expected |= {f"fedala/weight/{name}": value for name, value in (weights or {}).items()}
        assert differing(kept, expected) == []
        shared = store.get_state(fed.record.model)
    values = torch.cat([value.flatten() for value in weights.values()])
    assert 0 <= float(values.min()) < 1, "weights were learned"


@pytest.mark.slow
def test_the_first_round_is_fedavg_and_without_layers_every_one(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run", train={"lr": 0.01})
    plain = [fed.record.model.digest for fed in run_rounds(2, "fedavg", context, start, tiny_data.sizes)]
    mixing = [fed.record.model.digest for fed in run_rounds(2, "fedala", context, start, tiny_data.sizes)]
    none = run_rounds(2, "fedala", context, start, tiny_data.sizes, own={"layers": []})
    assert mixing[0] == plain[0] and mixing[1] != plain[1]
    assert [fed.record.model.digest for fed in none] == plain and not none[-1].record.state.private


@pytest.mark.slow
def test_absent_clients_keep_their_models_and_weights(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    first, second = run_rounds(2, "fedala", context, start, tiny_data.sizes)
    third = run_round("fedala", context, start, tiny_data.sizes, before=second, clients_per_round=1)
    (present,) = third.record.participants
    for part in ("private", "own"):
        before, after = getattr(second.record.state, part), getattr(third.record.state, part)
        assert {c for c in tiny_data.ids if before[c] != after[c]} == ({present} if part == "private" else set())
    names = [client_model(client) for client in tiny_data.ids if client != present]
    assert all(third.record.state.models[name] == second.record.state.models[name] for name in names)
    assert first.record.state.personalised == sorted(tiny_data.ids)


@pytest.mark.slow
def test_layers_that_the_network_does_not_have_end_the_round(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    with pytest.raises(UserError, match="no trained parameter has a name that begins so"):
        run_round("fedala", context, start, tiny_data.sizes, own={"layers": ["readot."]})
