"""Progress in the terminal: finished clients of a stage, and the remaining time."""

import io

import pytest
from rich.console import Console

from flows.cli import progress
from flows.cli.progress import Live, duration_text
from flows.engine.engines import LocalEngine
from tests.support.fabricated import fabricated_record


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_finished_round_shows_the_remaining_time(clock):
    out = io.StringIO()
    with Live(Console(file=out, width=200), 4) as live:
        live.round_done(fabricated_record(1), found=True)
        assert "left" not in out.getvalue(), "a round that was done before says nothing about this machine"
        live.stage(2, "local training", 6)
        clock.now += 240
        live.round_done(fabricated_record(2))
        assert "about 8 min left" in out.getvalue().splitlines()[-1]
        live.stage(3, "local training", 6)
        clock.now += 120
        live.round_done(fabricated_record(3))
        assert "about 3 min left" in out.getvalue().splitlines()[-1], "the mean of both rounds"
        live.stage(4, "local training", 6)
        live.round_done(fabricated_record(4))
        assert "left" not in out.getvalue().splitlines()[-1]


def test_a_log_file_gets_a_line_in_long_rounds(clock):
    out = io.StringIO()
    with Live(Console(file=out, width=200), 4) as live:
        live.stage(1, "local training", 6)
        live.clients_done(1)
        assert out.getvalue() == ""
        clock.now += 31
        live.clients_done(2)
        live.clients_done(3)
    assert out.getvalue().splitlines() == ["round 1/4: local training, 2 of 6 clients"]


def test_a_terminal_shows_finished_clients(clock):
    with Live(Console(file=io.StringIO(), width=200, force_terminal=True), 4) as live:
        live.stage(1, "local training", 6)
        live.clients_done(4)
        assert live.bar.tasks[0].description == "round 1/4: local training, 4 of 6 clients"


@pytest.mark.parametrize(("seconds", "text"), [(0, "1 s"), (40, "40 s"), (100, "2 min"), (11100, "3 h 05 min")])
def test_durations(seconds, text):
    assert duration_text(seconds) == text


def test_the_engine_reports_every_call_and_keeps_their_order(monkeypatch):
    monkeypatch.setattr(LocalEngine, "call", staticmethod(lambda task, args: args[0]))
    seen = []
    found = LocalEngine(2).map("any", [(str(n), (n,)) for n in range(5)], done=seen.append)
    assert found == list(range(5)) and sorted(seen) == list(range(5))
