"""CPFL in rounds: clients train on from their mixtures; absent ones keep theirs; with self weight 1 it is Local."""

import pytest

from tasks.core.round_state import client_model
from tasks.server.mixing_record import read_mixing
from tests.support.rounds import make_context, run_rounds

pytestmark = pytest.mark.slow


def own_digests(fed):
    return {client: fed.record.state.own_model(client)[0].digest for client in fed.record.state.personalised}


def test_with_self_weight_1_it_is_local_training_bit_for_bit(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    mine = run_rounds(2, "cpfl", context, start, tiny_data.sizes, own={"self_weight": 1.0})
    local = run_rounds(2, "local", context, start, tiny_data.sizes)
    assert [own_digests(fed) for fed in mine] == [own_digests(fed) for fed in local]
    assert len(set(own_digests(mine[-1]).values())) == len(tiny_data.ids)


def test_weights_are_recorded_and_absent_clients_keep_their_model(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    options = {"own": {"self_weight": 0.3}, "clients_per_round": 2}
    first, second = run_rounds(2, "cpfl", context, start, tiny_data.sizes, **options)
    record = read_mixing(context.open_store(), first.record.state)
    assert sorted(record.clients) == first.record.participants
    assert all(matrix.diagonal() == pytest.approx(0.3) for matrix in record.layers.values())
    absent = [c for c in first.record.participants if c not in second.record.participants]
    for client in absent:
        name = client_model(client)
        assert second.record.state.models[name] == first.record.state.models[name]
    assert set(own_digests(second)) == {*first.record.participants, *second.record.participants}
