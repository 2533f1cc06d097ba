"""The ephemeral Prefect server: never through a proxy; if it cannot start, the cause is reported at once."""

import os
import sqlite3
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flows.engine.environment import prepare
from flows.engine.flow_calls import call_flow
from models.errors import UserError

pytestmark = pytest.mark.integration
DEAD = "http://127.0.0.1:9"


@pytest.fixture
def proxies(monkeypatch):
    """An environment without proxies; changes are undone after the test."""
    for name in [*os.environ, "no_proxy", "NO_PROXY"]:
        if name.lower().endswith("_proxy"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture(scope="module")
def local_server():
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            html = self.path.startswith("/page")
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if html else "application/json")
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_local_servers_are_not_reached_through_a_proxy(proxies, local_server, name):
    import httpx
    import requests

    proxies.setenv(name, DEAD)
    proxies.setenv("NO_PROXY", "intern.example, 10.0.0.1")
    prepare()
    assert httpx.get(f"{local_server}/api/health").status_code == 200  # as Prefect asks
    assert requests.get(f"{local_server}/api/health", timeout=5).status_code == 200  # as MLflow asks
    entries = ["intern.example", "10.0.0.1", "localhost", "127.0.0.1", "::1"]
    assert os.environ["NO_PROXY"].split(",") == os.environ["no_proxy"].split(",") == entries


def test_no_proxy_is_left_alone_without_a_proxy_or_with_a_wildcard(proxies):
    prepare()
    assert "NO_PROXY" not in os.environ
    proxies.setenv("HTTPS_PROXY", DEAD)
    proxies.setenv("no_proxy", "*")
    prepare()
    assert os.environ["no_proxy"] == "*" and "NO_PROXY" not in os.environ


@pytest.fixture
def refusal(tmp_path, proxies):
    """``refusal(name, url)``: the error of a flow with a temporary Prefect home, raised within 30 s."""
    from prefect import Flow
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    def run(name: str = "federate", url: str | None = None) -> UserError:
        updates = {PREFECT_HOME: tmp_path / "prefect"} | ({PREFECT_API_URL: url} if url else {})
        restored = set() if url else {PREFECT_API_URL}
        began = time.monotonic()
        with temporary_settings(updates=updates, restore_defaults=restored), pytest.raises(UserError) as raised:
            call_flow(Flow(lambda: None, name=name), "a run")
        assert time.monotonic() - began < 30
        assert len(str(raised.value).splitlines()) <= 5 and raised.value.hint
        way = "params.yaml, then dvc repro" if name == "pipeline" else "--set federation.engine=local"
        assert way in raised.value.hint
        return raised.value

    (tmp_path / "prefect").mkdir()
    proxies.delenv("PREFECT_API_URL", raising=False)
    return run


def test_an_unusable_prefect_home_is_reported(tmp_path, refusal):
    (tmp_path / "prefect").rmdir()
    (tmp_path / "prefect").write_text("a file")
    error = refusal()
    assert str(tmp_path / "prefect") in str(error) and "PREFECT_HOME" in error.hint
    assert refusal("pipeline").what == error.what


def _another_version(file):
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('f00000000000')")
    database.close()


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda file: file.write_bytes(b"no database " * 50), "damaged"),
        (_another_version, "another version of Prefect"),
    ],
)
def test_an_unusable_prefect_database_is_reported(tmp_path, refusal, spoil, what):
    spoil(tmp_path / "prefect" / "prefect.db")
    error = refusal()
    assert what in error.what and str(error.where) == str(tmp_path / "prefect" / "prefect.db")
    command = error.hint.partition(" (")[0]
    subprocess.run(["sh", "-c", command], check=True)
    assert [path.name for path in (tmp_path / "prefect").iterdir()] == ["old"]  # the hint works


def test_a_locked_prefect_database_is_reported(tmp_path, refusal, monkeypatch):
    monkeypatch.setattr("flows.engine.prefect_server_faults.LOCK_TIMEOUT_S", 0.2)
    holder = sqlite3.connect(tmp_path / "prefect" / "prefect.db")
    holder.execute("CREATE TABLE a (b)")
    holder.commit()
    holder.execute("BEGIN IMMEDIATE")
    try:
        assert "held by another process" in refusal().what
    finally:
        holder.close()


@pytest.mark.parametrize(
    ("program", "parts"),
    [
        ("import sys; print('No space left on device', file=sys.stderr); sys.exit(3)", ["disk", "full", "make room"]),
        ("raise ModuleNotFoundError(\"No module named 'aiosqlite'\")", ["missing", "aiosqlite", "pip install"]),
        ("raise SystemExit('strange things')", ["does not start", "ended with code 1", "strange things"]),
        ("import time; time.sleep(60)", ["does not start", "has done nothing", "prefect server start"]),
    ],
)
def test_a_failing_server_start_reports_its_cause(refusal, monkeypatch, program, parts):
    monkeypatch.setattr("flows.engine.prefect_server.SERVER_PROGRAM", program)
    monkeypatch.setattr("flows.engine.prefect_server.STALL_TIMEOUT_S", 1.0)
    error = refusal()
    assert [part for part in parts if part not in str(error)] == []


SLOW = """\
import sys, time
end = time.process_time() + 1.5
while time.process_time() < end:
    pass
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Answer).serve_forever()
"""


def test_a_slow_start_is_waited_for_while_it_makes_progress(tmp_path, monkeypatch):
    from flows.engine import prefect_server

    monkeypatch.setattr(prefect_server, "SERVER_PROGRAM", SLOW)
    monkeypatch.setattr(prefect_server, "STALL_TIMEOUT_S", 1.2)
    monkeypatch.setattr(prefect_server, "MIN_CPU_S", 0.05)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as free:
        port = free.server_port
    process, lines = prefect_server.launch(port)
    try:
        assert prefect_server.wait_until_ready(process, port, tmp_path, 60) == "", list(lines)
    finally:
        prefect_server.stop(process)


def test_invalid_proxies_and_addresses_are_reported(refusal, proxies, local_server):
    proxies.setenv("ALL_PROXY", "http://host:port")
    assert "ALL_PROXY" in refusal().hint
    proxies.delenv("ALL_PROXY")
    assert "unset PREFECT_API_URL" in refusal(url=f"{DEAD}/api").hint
    assert "ends in /api" in str(refusal(url=f"{local_server}/page"))
