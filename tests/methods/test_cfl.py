"""CFL in rounds: when clusters split, what they average, and who is refused."""

import pytest
import torch

from flows.methods.cfl import Settings, check
from flows.methods.facts import RunFacts
from tasks.core.round_state import cluster_model
from tests.support.rounds import PLAIN_SGD, make_context, run_rounds

EAGER = {"warmup": 1, "eps1": 1e9, "eps2": 0.0}  # splits whenever it may


def test_sampled_clients_are_refused():
    with pytest.raises(ValueError, match="clients_per_round must be null, found 3"):
        check(RunFacts(Settings(), None, None, 9, 3))
    check(RunFacts(Settings(), None, None, 9, None))


def play(data, folder, rounds, **own):
    context, start = make_context(data, folder, train=PLAIN_SGD)
    return context, run_rounds(rounds, "cfl", context, start, data.sizes, own=own)


@pytest.mark.slow
def test_clusters_split_after_the_warm_up_down_to_the_smallest_size(tiny_data, tmp_path):
    _, rounds = play(tiny_data, tmp_path / "run", 3, **EAGER)
    counts = [len(fed.record.state.cluster_models) for fed in rounds]
    assert counts[0] == 1 and counts[1] == 2 and counts == sorted(counts)
    assert any("cluster 0 was split" in note for note in rounds[1].record.notes)
    first, second = (fed.record.state.cluster_of for fed in rounds[:2])
    assert set(first.values()) == {0} and set(second.values()) == {0, 1} and set(second) == set(tiny_data.ids)


@pytest.mark.slow
def test_each_cluster_is_the_plain_mean_of_its_members(tiny_data, tmp_path):
    context, rounds = play(tiny_data, tmp_path / "run", 2, **EAGER)
    store, record = context.open_store(), rounds[-1].record
    for index in set(record.state.cluster_of.values()):
        own = [u for u in record.updates[1] if record.state.cluster_of[u.client] == index]
        expected = torch.stack([store.get_state(u.model)["readout.bias"].double() for u in own]).mean(0)
        found = store.get_state(record.state.models[cluster_model(index)])["readout.bias"].double()
        assert torch.allclose(found, expected, atol=1e-7)


@pytest.mark.slow
def test_relative_bounds_remember_round_1(tiny_data, tmp_path):
    _, rounds = play(tiny_data, tmp_path / "run", 2, warmup=1, eps1=1e9, eps2=0.0, relative=True)
    assert len(rounds[-1].record.state.cluster_models) == 2
    assert rounds[0].record.state.server["cfl"] == rounds[1].record.state.server["cfl"]
