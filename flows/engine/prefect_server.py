"""The Prefect server of a run: the one that is named, or an ephemeral one that is started for the run.

Prefect itself restarts a failing server again and again, and then shows its traceback. Here a start that cannot
succeed ends with one message that names the cause; a slow start that makes progress is waited for.
"""

import atexit
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from pathlib import Path
from typing import Any

from flows.engine.environment import DEFAULTS
from flows.engine.prefect_server_faults import check_database, check_home, failure, without
from models.errors import UserError

STALL_TIMEOUT_S = 25.0  # without progress
MIN_CPU_S = 0.5  # of the server's processor time that count as progress
MAX_PORTS = 3  # attempts, if another process takes a port between the check and the start
MAX_LINES = 300  # of the server's output
# The server ends with its parent, however that ends: its standard input is closed then.
SERVER_PROGRAM = (
    "import os, sys, threading\n"
    "threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()\n"
    "import uvicorn\n"
    "uvicorn.main()\n"
)


def import_prefect(flow: str = "") -> Any:
    """Import Prefect and return its settings.

    Raises:
        UserError: If the package, or a part of it, is missing, or its settings are wrong.
    """
    try:
        import prefect  # noqa: F401
        from prefect.settings import get_current_settings

        return get_current_settings()
    except ImportError as error:
        hint = f"pip install 'prefect>=3.9,<3.10', {without(flow)}"
        raise UserError("Prefect cannot be imported", found=error, hint=hint) from error
    except (ValueError, TypeError, OSError) as error:
        changed = [
            name for name in os.environ if name.startswith("PREFECT_") and os.environ[name] != DEFAULTS.get(name)
        ]
        names = ", ".join(sorted(changed)) or "none set"
        raise UserError(
            "Prefect's settings are wrong",
            where=f"environment ({names}), prefect.toml or ~/.prefect/profiles.toml",
            found="; ".join(str(error).splitlines()[:3]),
            hint=f"unset or correct it, {without(flow)}",
        ) from error


def require_server(flow: str = "") -> None:
    """Make sure that a server answers before Prefect connects to it; start one if none is named.

    Args:
        flow: Name of the flow, for the hint how to run without Prefect.

    Raises:
        UserError: If the named one does not answer, or none can be started.
    """
    settings = import_prefect(flow)
    _check_client(flow)
    if settings.api.url:
        _check_named(settings.api.url, flow)
        return
    if not settings.server.ephemeral.enabled:
        raise UserError(
            "no Prefect server is named, and Prefect's settings do not allow an ephemeral one",
            where="PREFECT_API_URL, server.ephemeral.enabled",
            hint=f"set PREFECT_API_URL or PREFECT_SERVER_EPHEMERAL_ENABLED=true, {without(flow)}",
        )
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()
    if server.running:
        return
    check_home(Path(settings.home), flow)
    check_database(Path(settings.home), flow)
    limit = float(settings.server.ephemeral.startup_timeout_seconds)
    server.port, server.server_process = _start(server.find_available_port, Path(settings.home), limit, flow)
    server.running = True  # Prefect finds it so, and starts none of its own
    atexit.register(server.stop)


def _check_client(flow: str) -> None:
    """Check that Prefect's client can be made: it reads every proxy of the environment, used or not."""
    import httpx

    try:
        httpx.Client().close()
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        names = [name for name in os.environ if name.lower().endswith("_proxy") and os.environ[name]]
        names = [name for name in names if name.lower() != "no_proxy"]
        raise UserError(
            "Prefect's client cannot use the proxy of the environment",
            where=", ".join(sorted(names)) or "environment",
            found=str(error).splitlines()[0],
            hint=f"unset {' '.join(sorted(names))}, {without(flow)}",
        ) from error


def _check_named(url: str, flow: str) -> None:
    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError("not an http address")
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=10) as answer:  # noqa: S310 - checked above
            if "html" in answer.headers.get("Content-Type", ""):
                raise ValueError("a web page, not Prefect's API: the address ends in /api")
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403):
            return  # it answers, and Prefect has the key
        proxy = urllib.request.getproxies().get(url.partition(":")[0])
        direct = urllib.request.proxy_bypass(url.split("/")[2].rpartition("@")[2]) if url.count("/") > 1 else True
        raise UserError(
            "the Prefect server does not answer",
            where=f"PREFECT_API_URL: {url}",
            found=error if not proxy or direct else f"{error}, through the proxy of the environment (see NO_PROXY)",
            hint=f"prefect server start, or unset PREFECT_API_URL, {without(flow)}",
        ) from error


def _start(find_port: Any, home: Path, limit: float, flow: str) -> tuple[int, "subprocess.Popen[bytes]"]:
    for attempt in range(MAX_PORTS):
        try:
            port = find_port()
        except RuntimeError as error:
            hint = f"stop a server that is not needed, {without(flow)}"
            raise UserError("no port is free for Prefect's server", where="8000 to 8999", hint=hint) from error
        process, lines = launch(port)
        why = wait_until_ready(process, port, home, limit)
        if not why:
            return port, process
        stop(process)
        if "address already in use" not in "\n".join(lines).lower() or attempt == MAX_PORTS - 1:
            raise failure(why, list(lines), home, flow)
    raise AssertionError("unreachable")


def launch(port: int) -> tuple["subprocess.Popen[bytes]", "deque[str]"]:
    """Start Prefect's server as Prefect does, except that its output is collected instead of shown."""
    import prefect
    from prefect.settings import get_current_settings

    ephemeral = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    arguments = ["--app-dir", str(prefect.__module_path__.parent), "--factory", "prefect.server.api.server:create_app"]
    arguments += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--lifespan", "on"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER_PROGRAM, *arguments],
        env={**os.environ, **ephemeral, **get_current_settings().to_environment_variables(exclude_unset=True)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines: deque[str] = deque(maxlen=MAX_LINES)

    def read() -> None:
        for line in process.stdout or ():
            lines.append(line.decode(errors="replace").rstrip())

    threading.Thread(target=read, name="prefect-server-lines", daemon=True).start()
    return process, lines


def wait_until_ready(process: "subprocess.Popen[bytes]", port: int, home: Path, limit: float) -> str:
    """Wait until the server answers and return ""; else the reason: it ended, stalled, or exceeded the limit."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    began = progressed = time.monotonic()
    last = _progress(process.pid, home)
    while True:
        if process.poll() is not None:
            return f"it ended with code {process.returncode}"
        try:
            direct.open(f"http://127.0.0.1:{port}/api/health", timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return _check_as_prefect_does(port)
        now = time.monotonic()
        current = _progress(process.pid, home)
        if current[0] is None or current[0] - (last[0] or 0) >= MIN_CPU_S or current[1] != last[1]:
            last, progressed = current, now
        if now - progressed > STALL_TIMEOUT_S:
            return f"it has done nothing for {STALL_TIMEOUT_S:g} s"
        if now - began > limit:
            return f"no answer in {limit:g} s (PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS)"


def _check_as_prefect_does(port: int) -> str:
    import httpx

    try:
        with httpx.Client(timeout=10) as client:
            code = client.get(f"http://127.0.0.1:{port}/api/health").status_code
    except httpx.HTTPError as error:
        return f"it answers, but not to Prefect's client: {error}"
    return "" if code == 200 else f"it answers, but to Prefect's client with {code} (a proxy: NO_PROXY=127.0.0.1)"


def _progress(pid: int, home: Path) -> tuple[float | None, float]:
    """Return a process's processor seconds (``None`` where the system does not tell) and its database's last change."""
    times = [file.stat().st_mtime for file in (home / "prefect.db", home / "prefect.db-wal") if file.exists()]
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None, max(times, default=0.0)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), max(times, default=0.0)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop the server, by force if it does not end within three seconds."""
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
