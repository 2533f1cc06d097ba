"""Kill a process by SIGKILL before its Nth event: a file opened for writing, renamed or removed, a call of MLflow."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FILES = {
    "os.rename": "rename",
    "os.remove": "remove",
    "os.rmdir": "remove folder",
    "os.mkdir": "make folder",
    "os.link": "link",
    "os.symlink": "link",
    "os.truncate": "truncate",
}
CALLS = (
    "create_experiment", "create_run", "update_run", "set_terminated", "log_batch", "log_metric", "log_artifact",
    "log_artifacts", "set_tag", "delete_tag", "create_logged_model", "finalize_logged_model", "log_model_artifacts",
    "log_outputs", "delete_logged_model",
)  # fmt: skip
READS = ("SELECT", "PRAGMA", "WITH")


@dataclass
class Events:
    """Counts the events of this process while it is armed, and ends it at one of them.

    Attributes:
        root: Only files under it count.
        end_at: Number of the event, from 1, before which the process ends; ``None``: never.
        torn: Truncate the file at an opening for writing, as a kill in the middle of a write does.
        armed: Whether events count now.
        seen: The events so far.
    """

    root: str
    end_at: int | None = None
    torn: bool = False
    armed: bool = False
    seen: list[str] = field(default_factory=list)

    def happened(self, kind: str, what: str, tear: Callable[[], None] | None = None) -> None:
        """Count an event before it happens; end the process at the chosen one."""
        if not self.armed:
            return
        if kind == "sql" and self.seen[-1:] == [f"{kind} {what}"]:
            return  # repeated statements of one transaction: a kill at the first or the last is the same
        self.seen.append(f"{kind} {what}")
        if len(self.seen) == self.end_at:
            self.armed = False
            if self.torn and tear is not None:
                tear()
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_files(self, arm_at: str | None = None) -> None:
        """Count what this process does to files, from the first renaming to a name that ends in ``arm_at``."""
        real_open, ending = os.open, arm_at

        def hook(event: str, arguments: tuple) -> None:
            nonlocal ending
            if event == "open":
                path, mode, flags = arguments
                writes = bool(flags & WRITING) or (isinstance(mode, str) and any(sign in mode for sign in "wax+"))
                if writes and isinstance(path, str | bytes | os.PathLike):
                    name = os.fsdecode(path)
                    empties = flags & os.O_TRUNC or (isinstance(mode, str) and "w" in mode)

                    def tear() -> None:
                        if empties:
                            os.close(real_open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666))

                    self._file("open for writing" if empties else "open", name, tear)
            elif event in FILES and not isinstance(arguments[0], int):  # a number is an open file
                name = os.fsdecode(arguments[1] if event == "os.rename" else arguments[0])
                if event in ("os.remove", "os.rmdir") and arguments[1] != -1:  # relative to an open folder
                    name = f"{Path(f'/proc/self/fd/{arguments[1]}').readlink()}/{name}"
                if ending and event == "os.rename" and name.endswith(ending):
                    self.armed, ending = True, None
                self._file(FILES[event], name)

        sys.addaudithook(hook)

    def _file(self, kind: str, name: str, tear: Callable[[], None] | None = None) -> None:
        path = os.path.abspath(name)  # noqa: PTH100 - pathlib would ask the disk
        if path.startswith(f"{self.root}/"):
            self.happened(kind, path[len(self.root) + 1 :], tear)

    def watch_mlflow(self) -> None:
        """Count calls of MLflow's client, the statements that change its database, and their commits."""
        from mlflow.tracking import MlflowClient
        from sqlalchemy import event
        from sqlalchemy.engine import Engine

        def counted(name: str, function: Callable) -> Callable:
            def call(*arguments, **options):
                self.happened("mlflow", f"before {name}")
                result = function(*arguments, **options)
                self.happened("mlflow", f"after {name}")
                return result

            return call

        for name in CALLS:
            setattr(MlflowClient, name, counted(name, getattr(MlflowClient, name)))

        changed = False

        def statement(_connection, _cursor, text, *_):
            nonlocal changed
            if not text.lstrip().upper().startswith(READS):
                changed = True
                self.happened("sql", " ".join(text.split()[:3]))

        def commit(_connection):
            nonlocal changed
            if changed:
                changed = False
                self.happened("sql", "commit")

        event.listen(Engine, "before_cursor_execute", statement)
        event.listen(Engine, "commit", commit)
