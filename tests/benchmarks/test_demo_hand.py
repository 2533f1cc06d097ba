"""The demo's hand-written loop does the work of the round: it arrives at the same weights."""

import pytest

from benchmarks.training.demo_hand import payloads_of, train
from tasks.client.local_data import local_data
from tasks.core.network import split_state
from tasks.core.store import state_digest
from tests.support.rounds import run_round


@pytest.mark.slow
def test_its_trainings_give_the_updates_of_the_round(make_run, tiny_data):
    context, start = make_run(train={"lr": 0.002})
    record = run_round("fmman", context, start, tiny_data.sizes, own={"clusters": 2}).record
    record.participants = list(tiny_data.ids)
    payloads, store = payloads_of(record, start), context.open_store()
    assert sorted(record.updates) == sorted(payloads) == [1, 3]
    for stage, updates in record.updates.items():
        assert len(updates) == 4
        for update in updates:
            data = local_data(context, update.client)
            model = train(context, store, update.client, stage, payloads[stage](update.client), data)
            assert state_digest(split_state(model, "avg")[0]) == update.model.digest
