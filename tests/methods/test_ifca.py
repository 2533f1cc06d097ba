"""IFCA in rounds: who trains which model, what is averaged, what stays."""

import pytest
import torch

from tasks.core.round_state import cluster_model
from tests.support.rounds import PLAIN_SGD, make_context, run_rounds

pytestmark = pytest.mark.slow


def play(data, folder, rounds=2, own=None, **federation):
    context, start = make_context(data, folder, train=PLAIN_SGD)
    return context, run_rounds(rounds, "ifca", context, start, data.sizes, own=own or {}, **federation)


def test_each_client_trains_the_model_with_its_lowest_loss_and_clusters_are_their_members_means(tiny_data, tmp_path):
    context, (fed, later) = play(tiny_data, tmp_path / "run", own={"clusters": 3})
    store, state = context.open_store(), fed.record.state
    assert set(state.cluster_of) == set(tiny_data.ids) and len(state.cluster_models) == 3
    for index in set(state.cluster_of.values()):
        members = [u for u in fed.record.updates[1] if state.cluster_of[u.client] == index]
        total = sum(u.samples for u in members)
        expected = sum(u.samples / total * store.get_state(u.model)["readout.bias"].double() for u in members)
        found = store.get_state(state.models[cluster_model(index)])["readout.bias"].double()
        assert torch.allclose(found, expected, atol=1e-7)
    assert all(state.own[client] == cluster_model(index) for client, index in state.cluster_of.items())
    # In round 2 a client's cluster is the one with its lowest loss under the models of round 1.
    losses = [later.client_losses(model, name="again", split="train") for model in state.cluster_models]
    for client, index in later.record.state.cluster_of.items():
        assert losses[index][client][0] == min(found[client][0] for found in losses)


def test_an_empty_cluster_keeps_its_model(tiny_data, tmp_path):
    _, (first, second) = play(tiny_data, tmp_path / "run", own={"clusters": 4}, clients_per_round=1)
    trained = {second.record.state.cluster_of[c] for c in second.record.participants}
    for index, model in enumerate(first.record.state.cluster_models):
        same = second.record.state.cluster_models[index].digest == model.digest
        assert same == (index not in trained)


def test_a_shared_encoder_is_the_mean_over_all_clients(tiny_data, tmp_path):
    context, (fed,) = play(tiny_data, tmp_path / "run", rounds=1, own={"clusters": 2, "shared": "backbone"})
    store, models = context.open_store(), fed.record.state.cluster_models
    mean, states = store.get_state(fed.record.model), [store.get_state(model) for model in models]
    assert all(torch.equal(state[n], mean[n]) for state in states for n in mean if n.startswith("backbone."))
    assert not torch.equal(states[0]["readout.weight"], states[1]["readout.weight"])


def test_every_participant_is_sent_all_models_for_their_losses(tiny_data, tmp_path):
    _, (fed,) = play(tiny_data, tmp_path / "run", rounds=1, own={"clusters": 3}, clients_per_round=2)
    size = fed.record.model.bytes
    assert sum(log.bytes_down for log in fed.record.stages) == 3 * 2 * size
    assert sum(log.bytes_up for log in fed.record.stages) == 2 * size
