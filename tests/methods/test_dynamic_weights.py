"""Dynamic weights in rounds: with the mean, with a server optimiser, against the two plain averages."""

import pytest
import torch

from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.weighting_settings import WeightingSettings
from tests.support.recorder import Recorder, federation
from tests.support.rounds import make_context, partitioned, run_rounds

pytestmark = pytest.mark.slow


def weighting(name, **more):
    return WeightingSettings(name=name, **more)


@pytest.fixture(scope="module")
def unequal(tiny_data, tmp_path_factory):
    data = partitioned(tiny_data.dataset, tmp_path_factory.mktemp("three") / "clients", scheme="iid", clients=3)
    assert len(set(data.sizes.values())) == 2
    return data


@pytest.fixture
def play(unequal, tmp_path):
    """``play(weighting, ...)``: rounds of a method in a fresh store."""

    def run(chosen, rounds=3, method="fedavg", sizes=None, **changes):
        context, start = make_context(unequal, tmp_path / "run", weighting=chosen, **changes)
        return run_rounds(rounds, method, context, start, sizes or unequal.sizes)

    return run


def models(rounds):
    return [fed.record.model.digest for fed in rounds]


def test_it_begins_as_fedavg_and_ends_as_the_uniform_mean(play, unequal):
    rounds = play(weighting("dynamic", horizon=3))
    total = sum(unequal.sizes.values())
    assert rounds[0].record.weights == {c: n / total for c, n in unequal.sizes.items()}
    assert rounds[1].record.weights == {c: pytest.approx(n / total / 2 + 1 / 6) for c, n in unequal.sizes.items()}
    assert rounds[2].record.weights == dict.fromkeys(unequal.sizes, 1 / 3)
    plain, uniform = models(play(weighting("samples"))), models(play(weighting("uniform")))
    assert models(rounds)[0] == plain[0] != uniform[0]
    assert models(rounds)[2] not in (plain[2], uniform[2])


def test_the_mean_has_these_weights(play):
    last = play(weighting("dynamic", horizon=3), rounds=2)[-1]
    store = last.context.open_store()
    trained = {u.client: store.get_state(u.model)["readout.bias"].double() for u in last.record.updates[1]}
    expected = sum(last.record.weights[client] * value for client, value in trained.items())
    assert torch.allclose(store.get_state(last.record.model)["readout.bias"].double(), expected, atol=1e-7)


def test_equal_sizes_are_uniform_and_sample_weighted_averaging_bit_for_bit(play, unequal, tmp_path):
    """D5: in the paper's own split all clients hold as many images; here two with 15 each."""
    smallest = [c for c, n in unequal.sizes.items() if n == 15]
    sizes = dict.fromkeys(smallest, 15)
    assert len(sizes) >= 2
    expected = models(play(weighting("samples"), sizes=sizes))
    for schedule in ("linear", "cosine", "step"):
        assert models(play(weighting("dynamic", horizon=3, schedule=schedule), sizes=sizes)) == expected
    assert models(play(weighting("uniform"), sizes=sizes)) == expected


@pytest.mark.parametrize("method", ["fedprox", "moon"])
def test_any_averaging_method_takes_them(play, method):
    plain, uniform = play(weighting("samples"), 1, method), play(weighting("uniform"), 1, method)
    assert set(uniform[0].record.weights.values()) == {1 / 3} and models(plain) != models(uniform)


def test_a_server_optimiser_steps_along_the_change_so_weighted(play):
    still = AggregatorSpec("fedavgm", {"momentum": 0.0})
    chosen = weighting("dynamic", horizon=3)
    assert models(play(chosen, aggregator=still)) == models(play(chosen))


def test_absent_clients_are_left_out_of_the_sum():
    fed = federation(engine := Recorder(silent="b"), model="resnet18", quorum=0.5, number=2)
    fed.context.weighting = weighting("dynamic", horizon=3)
    from flows.methods import fedavg

    fedavg.run_round(fed, fed.state)
    full = {c: n / 100 / 2 + 1 / 8 for c, n in {"a": 10, "b": 30, "c": 20, "d": 40}.items()}
    ((_, weights),) = engine.averages
    assert weights == pytest.approx([full[c] / (1 - full["b"]) for c in "acd"])


def test_a_methods_own_weights_come_first():
    fed = federation(engine := Recorder(), model="resnet18")
    fed.context.weighting = weighting("uniform")
    updates = [engine.update(type("Job", (), {"client": c, "stage": 1})) for c in "ab"]
    fed.aggregate(updates, fed.state.global_model, weights=[0.25, 0.75], name="own")
    fed.aggregate(updates, fed.state.global_model, spec=AggregatorSpec("tasks.server.fednova"), name="own step")
    fed.aggregate(updates, fed.state.global_model, name="the settings'")
    assert [weights for _, weights in engine.averages] == [[0.25, 0.75], [0.25, 0.75], [0.5, 0.5]]
