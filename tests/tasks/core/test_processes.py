"""Worker processes do not outlive the process that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import sys, time
from tasks.core.processes import process_pool
from os import getpid

if __name__ == "__main__":
    pool = process_pool(2)
    waiting = [pool.submit(getpid) for _ in range(2)]
    pids = {future.result() for future in waiting} | set(pool._processes)
    print(*pids, flush=True)
    time.sleep(300)
"""


@pytest.mark.integration
def test_workers_end_with_a_killed_parent(tmp_path):
    """They waited for images for ever."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert pids
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in pids if alive(pid)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
