"""Locks: of two processes that need the same data, one makes them; the other waits, or is refused."""

import os
import subprocess
import sys
import threading
import time

import pytest

SMALL = (
    "ingest.image_size=32",
    "ingest.synthetic.images=40",
    "ingest.synthetic.sites=2",
    "partition.scheme=iid",
    "partition.clients=2",
    "partition.min_size=2",
)
TWO = """
import sys, logging, time
from pathlib import Path
from flows.run.prepare_data import prepare_data
from flows.settings.files import load_settings
import tasks.data.ingest.ingest as module
collect = module.collect
def slow(*args, **more):
    found = collect(*args, **more)
    Path("reads").open("a").write("read\\n")
    time.sleep(1)
    return found
module.collect = slow
if sys.argv[1] == "prepare":
    print(prepare_data(load_settings(None, ["tiny"], sys.argv[2:])))
else:
    from flows.run.prepare_data import ingest_stage
    print(ingest_stage(load_settings(None, ["tiny"], sys.argv[2:]), Path("data"))["digest"])
"""


@pytest.mark.integration
@pytest.mark.parametrize("what", ["prepare", "ingest"])
def test_the_second_of_two_processes_waits_and_uses_the_data_of_the_first(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "two.py").write_text(TWO)
    command = [sys.executable, "two.py", what, *SMALL]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outs
    assert outs[0][0] == outs[1][0] and (tmp_path / "reads").read_text() == "read\n"
    (said,) = [err for _, err in outs if "waiting for process" in err]
    assert str(both[0].pid) in said or str(both[1].pid) in said
    assert not list(tmp_path.rglob("*.lock"))


@pytest.mark.integration
def test_the_lock_of_a_dead_process_is_free(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "import os, sys\nfrom pathlib import Path\nfrom tasks.core.locks import locked\n"
    script += "with locked(Path('place'), 'works'):\n    os._exit(9)\n"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert (tmp_path / ".place.lock").exists()
    from tasks.core.locks import locked

    with locked(tmp_path / "place", "works") as waited:
        assert not waited
    assert not (tmp_path / ".place.lock").exists()


UNGUARDED = """
from multiprocessing import get_context
from pathlib import Path
from tasks.core.locks import locked
def work():
    pass
with locked(Path("place"), "works"):
    worker = get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    print("ended with", worker.exitcode)
"""


@pytest.mark.integration
def test_a_spawned_worker_does_not_wait_for_its_parent(tmp_path):
    (tmp_path / "program.py").write_text(UNGUARDED)
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "ended with 1" in done.stdout and "__main__" in done.stderr


HOLD = """
import time
from pathlib import Path
from flows.run.lock import locked_run
with locked_run(Path("runs/mine")):
    Path("held").touch()
    while not Path("release").exists():
        time.sleep(0.05)
    Path("runs/mine/done").touch()
"""


@pytest.mark.integration
def test_a_run_in_use_is_waited_for_by_training_and_refused_for_a_report(tiny_data, tmp_path, monkeypatch, caplog):
    from flows.run.inputs import DataPaths
    from flows.run.lock import locked_run
    from flows.run.open import open_run
    from flows.settings.files import load_settings
    from models.errors import UserError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    other = subprocess.Popen([sys.executable, "-c", HOLD])
    while not (tmp_path / "held").exists():
        assert other.poll() is None
        time.sleep(0.05)
    with pytest.raises(UserError, match="another process") as caught, locked_run(tmp_path / "runs/mine", "elsewhere"):
        pass
    assert str(other.pid) in str(caught.value.found) and caught.value.hint == "elsewhere"
    settings = load_settings(None, ["tiny"], ["ingest.image_size=32"])

    def release_when_waited_for():
        end = time.monotonic() + 60
        while "waiting for" not in caplog.text and time.monotonic() < end:
            time.sleep(0.05)
        (tmp_path / "release").touch()

    threading.Thread(target=release_when_waited_for).start()
    with open_run(settings, DataPaths(tiny_data.dataset, tiny_data.clients), "mine") as run:
        assert (run.root / "done").exists()
    assert f"waiting for process {other.pid} that works on this run" in caplog.text and other.wait() == 0


def test_a_limited_wait_ends_with_an_error_that_names_the_holder(tmp_path):
    from models.errors import UserError
    from tasks.core.locks import locked

    file = tmp_path / "locks" / "mine.lock"
    with locked(tmp_path, "runs the first", wait_s=0, refusal="busy", file=file):
        began = time.monotonic()
        with (
            pytest.raises(UserError, match="busy") as caught,
            locked(tmp_path, "x", wait_s=0.3, refusal="busy", file=file),
        ):
            pass
    assert 0.3 <= time.monotonic() - began < 5
    assert f"process {os.getpid()} that runs the first" in str(caught.value.found)
    assert file.exists()
    with locked(tmp_path, "runs the next", wait_s=0, refusal="busy", file=file) as waited:
        assert not waited


def test_a_limited_wait_succeeds_when_the_lock_becomes_free(tmp_path):
    from tasks.core.locks import locked

    ready = threading.Event()

    def hold():
        with locked(tmp_path / "place", "holds it"):
            ready.set()
            time.sleep(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    assert ready.wait(10)
    with locked(tmp_path / "place", "comes second", wait_s=30, refusal="busy"):
        assert not holder.is_alive() or holder.join(5) is None
