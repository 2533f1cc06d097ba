"""Tracking without MLflow: URIs, whether the store can be used, params and tags."""

import base64
import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from models.errors import UserError
from tasks.core.round_summary import best_round
from tasks.tracking.availability import PORTS, check_available
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.tags import best_tags, plan_params
from tasks.tracking.uri import resolve_uri
from tests.support.fabricated import fabricated_record

SETTINGS = TrackingSettings()


def test_best_round_is_the_earliest_highest():
    records = [fabricated_record(n) for n in (1, 2, 3, 4)]
    for record, value in zip(records, (0.2, 0.7, math.nan, 0.7), strict=True):
        record.metrics["macro_ap"] = value
    assert best_round(records) == 2
    assert best_round([records[2]]) == 3
    tags: dict[str, str] = {}
    for record in records:
        tags |= best_tags(tags, record)
    assert tags["fedscene.best_round"] == "2"


def test_params_are_cut_and_changes_become_a_tag():
    new, tags = plan_params({"a": "x" * 7000, "b": 2, "c": 3}, {"b": "1", "c": "3"}, {"t": "y" * 9000})
    assert new == {"a": "x" * 6000}
    assert tags["fedscene.cut_params"] == "a"
    assert tags["fedscene.changed_params"] == "b: 1 -> 2"
    assert len(tags["t"]) == 8000


def test_passwords_in_addresses_are_not_shown(tmp_path):
    with pytest.raises(UserError) as caught:
        check_available(TrackingSettings(uri="http://me:secret@127.0.0.1:9", timeout=1), tmp_path)
    assert "secret" not in str(caught.value) and "http://***@127.0.0.1:9" in str(caught.value)


def test_uri_is_absolute_and_folders_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri(SETTINGS, Path("runs")) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert resolve_uri(TrackingSettings(uri="sqlite:///x.db"), tmp_path) == f"sqlite:///{tmp_path}/x.db"
    assert resolve_uri(TrackingSettings(uri="http://host:1"), tmp_path) == "http://host:1"
    with pytest.raises(UserError, match="plain folders"):
        resolve_uri(TrackingSettings(uri="file:/tmp/mlruns"), tmp_path)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http://[bad", "URI is invalid"),
        ("sqlite://x.db", "sqlite:///x.db"),
        ("sqlite:/a/x.db", "sqlite:////a/x.db"),
        ("sqlite+pysqlite:///x.db", "sqlite:///x.db"),
        ("postgresql://u:secret@127.0.0.1/x", r"postgresql://\*\*\*@127.0.0.1/x"),
        ("http://me:sec@ret@127.0.0.1:x", "is unreachable"),
    ],
)
def test_unusable_addresses_are_refused(tmp_path, monkeypatch, uri, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PORTS, "postgresql", 9)  # nobody listens there
    with pytest.raises(UserError, match=words) as caught:
        check_available(TrackingSettings(uri=uri, timeout=1), tmp_path)
    assert "secret" not in str(caught.value) and "ret@" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


class _Answer(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self):
        self.server.asked = (self.path, self.headers["Authorization"])
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.mark.parametrize(("code", "good"), [(200, True), (401, True), (503, False)])
def test_availability_is_the_servers_health(tmp_path, code, good):
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (_Answer,), {"code": code}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = TrackingSettings(uri=f"http://127.0.0.1:{server.server_port}", timeout=3)
    try:
        if good:
            check_available(settings, tmp_path)
        else:
            with pytest.raises(UserError, match="is unreachable"):
                check_available(settings, tmp_path)
    finally:
        server.shutdown()
        server.server_close()


def test_a_login_in_the_address_is_sent_as_a_header(tmp_path):
    server = HTTPServer(("127.0.0.1", 0), _Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        uri = f"http://me:p%40ss@127.0.0.1:{server.server_port}/mlflow/"
        check_available(TrackingSettings(uri=uri, timeout=3), tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    assert server.asked == ("/mlflow/health", "Basic " + base64.b64encode(b"me:p@ss").decode())


def test_an_unreachable_server_and_a_wrong_file_are_named(tmp_path):
    with pytest.raises(UserError, match=r"http://127.0.0.1:9.*\n(.*\n)*.*tracking.enabled"):
        check_available(TrackingSettings(uri="http://127.0.0.1:9", timeout=1), tmp_path)
    check_available(SETTINGS, tmp_path / "new")
    (tmp_path / "mlflow.db").write_text("a text, not a database")
    with pytest.raises(UserError, match="not an SQLite file"):
        check_available(SETTINGS, tmp_path)
