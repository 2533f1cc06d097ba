"""ICFL in rounds: the warm-up, clients that come late, clusters of which nobody reports."""

import pytest
import torch

from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.round_state import RoundState, cluster_model
from tests.support.rounds import PLAIN_SGD, make_context, make_federation, run_rounds

APART = {"theta_join": 1.0, "theta_split": 0.99, "theta_merge": 1.0}  # clusters split until clients are alone


def test_thresholds_that_swing_are_refused():
    with pytest.raises(UserError, match="theta_split must be below theta_merge"):
        load_settings(None, ["tiny"], ["method.name=icfl", "method.icfl.theta_split=0.3"])
    load_settings(None, ["tiny"], ["method.name=icfl", "method.icfl.theta_split=0.3", "method.icfl.theta_merge=0.4"])


def play(data, folder, rounds, clients=None, **own):
    context, start = make_context(data, folder, train=PLAIN_SGD)
    return context, run_rounds(rounds, "icfl", context, start, clients or data.sizes, own=own)


@pytest.mark.slow
def test_all_are_one_cluster_in_the_warm_up_and_split_later(tiny_data, tmp_path):
    _, rounds = play(tiny_data, tmp_path / "run", 4, **APART, warmup=2)
    counts = [len(fed.record.state.cluster_models) for fed in rounds]
    assert counts[:2] == [1, 1] and counts[2] == 2 and counts[3] > 2
    assert set(rounds[-1].record.state.cluster_of) == set(tiny_data.ids)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["two_step", "one_threshold"])
def test_each_cluster_is_the_mean_of_its_members_by_sample_count(variant, tiny_data, tmp_path):
    context, rounds = play(tiny_data, tmp_path / "run", 2, **APART, variant=variant)
    store, record = context.open_store(), rounds[-1].record
    assert len(record.state.cluster_models) > 1
    for index in set(record.state.cluster_of.values()):
        own = [u for u in record.updates[1] if record.state.cluster_of[u.client] == index]
        weights = torch.tensor([float(u.samples) for u in own], dtype=torch.float64)
        values = torch.stack([store.get_state(u.model)["readout.bias"].double() for u in own])
        found = store.get_state(record.state.models[cluster_model(index)])["readout.bias"].double()
        assert torch.allclose(found, (weights[:, None] * values).sum(0) / weights.sum(), atol=1e-7)


@pytest.mark.slow
def test_a_late_client_begins_with_the_global_model_and_an_absent_cluster_keeps_its_own(tiny_data, tmp_path):
    from flows.methods import load_method

    module = load_method("icfl")
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD)
    *early, late = tiny_data.ids
    state = RoundState.starting_from(start)
    for number, present in ((1, early), (2, early), (3, [late])):
        before = state
        own = module.Settings(**APART | {"theta_split": -1.0})
        fed = make_federation(context, own, tiny_data.sizes, number=number, state=before.copy())
        fed.sample = present.copy
        state = module.run_round(fed, before.copy())
    assert late not in before.cluster_of
    assert state.models[f"received/{late}"] == before.global_model
    assert state.cluster_of == dict.fromkeys(early, 0) | {late: 1}
    assert state.cluster_models[0] == before.cluster_models[0] != state.cluster_models[1]
