"""Contestants run in turns; a failing one costs its own row; a process is stamped from outside."""

import sys

import pytest

from benchmarks.harness.alternate import alternate, turns
from benchmarks.harness.contestant import Contestant, RunError, run_once


def contestant(name, **fields):
    return Contestant(name, f"title of {name}", lambda _: [], lambda run, folder: {}, **fields)


def test_every_turn_begins_with_another_contestant():
    assert turns(3, 4) == [0, 1, 2, 1, 2, 0, 2, 0, 1, 0, 1, 2]


def test_alternate_runs_each_as_often_and_stops_what_fails(tmp_path):
    order, lines = [], []

    def run(each, folder, limit):
        assert folder.is_dir() and not list(folder.iterdir())
        order.append(each.name)
        if each.name == "b" and order.count("b") == 2:
            raise RunError("out of breath")
        return {"cpu_s": float(len(order))}

    four = [contestant("a"), contestant("b"), contestant("c", fault="cannot be installed"), contestant("d").once()]
    entries = alternate(four, 3, tmp_path, lines.append, run)
    assert order == ["a", "b", "d", "b", "a", "a"]
    assert [run["cpu_s"] for run in entries["a"].runs] == [1.0, 5.0, 6.0]
    assert len(entries["b"].runs) == 1 and entries["b"].fault == "out of breath"
    assert entries["c"].runs == [] and entries["c"].fault == "cannot be installed"
    assert len(entries["d"].runs) == 1 and not entries["d"].fault
    assert any("out of breath" in line for line in lines)


SCRIPT = """
import json, subprocess, sys, time
for number in (1, 2):
    subprocess.run([sys.executable, "-c", "x = sum(i * i for i in range(1500000))"])
    print(f"round {number} done", file=sys.stderr, flush=True)
open("first", "w").close()
time.sleep(0.2)
print("some output")
print(json.dumps({"loss": 0.25}))
"""


@pytest.mark.integration
def test_rounds_children_files_and_the_result_of_a_process_are_seen(tmp_path):
    seen = []

    def collect(run, folder):
        seen.append(run)
        return run.result

    command = [sys.executable, "-c", SCRIPT]
    case = Contestant("p", "p", lambda _: command, collect, until=lambda folder: folder / "first")
    assert run_once(case, tmp_path, 60.0) == {"loss": 0.25}
    run = seen[0]
    assert 0 < run.rounds[1].wall < run.rounds[2].wall < run.end.wall
    assert run.rounds[2].cpu - run.rounds[1].cpu > 0.04  # the child's, which has ended
    assert run.first is not None and run.first.wall < run.end.wall
    assert run.end.cpu >= run.rounds[2].cpu


@pytest.mark.integration
def test_a_failing_process_is_named_by_its_error(tmp_path):
    code = "import sys; print('Traceback'); sys.exit('ValueError: no such thing')"
    case = Contestant("p", "p", lambda _: [sys.executable, "-c", code], lambda run, folder: {})
    with pytest.raises(RunError, match="no such thing"):
        run_once(case, tmp_path, 60.0)
