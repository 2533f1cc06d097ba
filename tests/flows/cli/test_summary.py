"""The end of a run in the terminal."""

import math

from flows.cli.summary import client_lines
from tasks.core.records import ModelRef, RoundRecord, RoundState


def record_of(rows):
    return RoundRecord(1, RoundState.starting_from(ModelRef("m", "1" * 64, 1)), per_client=rows)


def test_the_mean_over_the_clients_and_the_worst_one_are_named():
    rows = {
        "a": {"local/accuracy": 0.9, "global/accuracy": 0.1},
        "b\u202e": {"local/accuracy": 0.3, "global/accuracy": 0.2},
        "c": {"local/accuracy": math.nan, "new_clients/accuracy": 0.5},
    }
    assert client_lines(record_of(rows)) == [
        "own test images (protocol local), accuracy: mean 0.600 over 2 clients, worst 0.300 (b\\u202e)",
        "clients that never train (protocol new_clients), accuracy: mean 0.500 over 1 client, worst 0.500 (c)",
    ]
    assert client_lines(record_of({})) == []
