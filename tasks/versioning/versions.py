"""Versions of the data in git's history.

A version is the outputs of the data stages, as ``dvc.lock`` records them, with the raw data of ``data/raw/*.dvc`` at
that time. git tracks both files; DVC's cache and remote have the bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.core.yaml_text import YamlTextError, parse_yaml
from tasks.versioning.dvc import check_repository, derive_version, parse_lock
from tasks.versioning.git import git_files, run_git
from tasks.versioning.raw_data import IGNORE, RAW
from tasks.versioning.repository import is_shallow

LOCK, PARAMS, COUNTS = "dvc.lock", "params.yaml", "data/ingest.json"


@dataclass(frozen=True)
class Version:
    """One state of the data.

    Attributes:
        id: ``dvc.data_version``; ``None`` for raw data that were not ingested yet.
        raw: Name below ``data/raw`` -> DVC's sum over it.
        images: Images in the data set, if ``data/ingest.json`` is there.
        commit: The first commit that has it; ``None`` if there is none yet.
        date: Of that commit, ISO 8601.
        subject: Of that commit.
    """

    id: str | None
    raw: Mapping[str, str]
    images: int | None = None
    commit: str | None = None
    date: str | None = None
    subject: str | None = None

    @property
    def key(self) -> tuple[str | None, tuple[tuple[str, str], ...]]:
        """What distinguishes it from other versions."""
        return self.id, tuple(sorted(self.raw.items()))


@dataclass(frozen=True)
class Record:
    """The files that identify data, in a commit or at present.

    Attributes:
        files: Path relative to the repository -> content: ``dvc.lock``, ``params.yaml``, ``data/raw/*.dvc``, ...
        commit: Sha, date and subject; empty for the present files.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    commit: tuple[str, str, str] | tuple[()] = ()

    @property
    def pointers(self) -> list[str]:
        """The ``data/raw/*.dvc`` files."""
        return sorted(path for path in self.files if _is_pointer(path))

    @property
    def stages(self) -> dict[str, Any]:
        """Stage name -> its entry in ``dvc.lock``."""
        where = f"commit {self.commit[0]}" if self.commit else LOCK
        return parse_lock(self.files[LOCK], where) if LOCK in self.files else {}

    @property
    def version(self) -> Version:
        """The version of the data that the files identify."""
        version = derive_version(self.stages)
        images = _images(self.files) if version else None
        return Version(
            version, {Path(path).stem: _sum(path, self.files[path]) for path in self.pointers}, images, *self.commit
        )


def present_version(root: Path) -> Version:
    """Return the version that ``dvc.lock`` and ``data/raw/*.dvc`` identify now, with its commit if it has one.

    Raises:
        UserError: If the folder is no DVC repository, or ``dvc.lock`` is damaged.
    """
    check_repository(root)
    now = present_record(root).version
    known = next((version for version in versions(root) if version.key == now.key), None)
    return replace(known, images=now.images) if known else now


def versions(root: Path) -> list[Version]:
    """Return every version in git's branches and tags, the newest first, each with its first commit.

    Raises:
        UserError: If the folder is no DVC repository.
    """
    check_repository(root)
    found: dict[Any, Version] = {}
    for record in reversed(_history(root)):
        version = record.version
        if version.id or version.raw:
            found.setdefault(version.key, version)
    return list(reversed(found.values()))


def find_version(root: Path, wanted: str) -> Version:
    """Return the version with this id (or its first 4 digits or more), or that of a commit, branch or tag.

    Raises:
        UserError: If there is none, or the id is ambiguous.
    """
    known = versions(root)
    # If one id has several raw data (added, not yet ingested), it was made from the earliest
    by_id = {version.id: version for version in known if version.id and version.id.startswith(wanted)}
    if len(wanted) >= 4 and len(by_id) == 1:
        return next(iter(by_id.values()))
    if len(wanted) >= 4 and by_id:
        raise UserError("several versions have an id that begins so", where=wanted, found=", ".join(map(str, by_id)))
    sha = run_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
    if sha:
        version = commit_record(root, sha).version
        if version.id or version.raw:
            return version
        raise UserError("this commit has no data", where=wanted, expected=f"{LOCK} or {RAW}/*.dvc in it")
    hint = "fedscene data versions lists all; one that was not committed, or on another machine only, is not listed"
    if is_shallow(root):
        hint = "git fetch --unshallow: this clone lacks a part of the history"
    raise UserError("no commit here has this version of the data", where=wanted, hint=hint)


def commit_record(root: Path, sha: str) -> Record:
    """Return a commit's files that identify data, and those outputs of its stages that git tracks: the metrics."""
    record = _read(root, _log(root, "-1", sha))[0]
    paths = [out["path"] for stage in record.stages.values() for out in stage.get("outs", [])]
    found = git_files(root, [f"{sha}:./{path}" for path in paths])
    return replace(record, files=record.files | {name.partition(":./")[2]: data for name, data in found.items()})


def present_record(root: Path) -> Record:
    """Return the present files that identify data."""
    paths = [LOCK, PARAMS, COUNTS, IGNORE, *(f"{RAW.as_posix()}/{file.name}" for file in (root / RAW).glob("*.dvc"))]
    return Record({path: (root / path).read_bytes() for path in paths if (root / path).is_file()})


def recorded(root: Path) -> list[str]:
    """Return DVC's targets: ``data/raw/*.dvc`` and the stages that have an entry in ``dvc.lock``."""
    record = present_record(root)
    known = (parse_yaml((root / "dvc.yaml").read_bytes(), unique_keys=False) or {}).get("stages") or {}
    return [*record.pointers, *(stage for stage in record.stages if stage in known)]


def committed_params(root: Path) -> list[dict[str, Any]]:
    """Return ``params.yaml`` of the present commit and of every commit that changes files that identify data."""
    records = [*_read(root, _log(root, "-1")), *_history(root)]
    return [
        dict(parse_yaml(record.files[PARAMS], unique_keys=False) or {}) for record in records if PARAMS in record.files
    ]


def _log(root: Path, *arguments: str) -> list[tuple[str, str, str]]:
    lines = run_git(root, "log", "--format=%H%x00%cI%x00%s", *arguments) or ""
    parts = (line.split("\0", 2) for line in lines.splitlines())
    return [(sha, date, subject) for sha, date, subject in parts]


def _history(root: Path) -> list[Record]:
    """Return the commits of branches and tags that change files that identify data, the newest first."""
    tips = ["--branches", "--tags", "--remotes", "HEAD", "--full-history", "--date-order"]
    return _read(root, _log(root, *tips, "--", LOCK, f"{RAW.as_posix()}/*.dvc"))


def _read(root: Path, commits: Sequence[tuple[str, str, str]]) -> list[Record]:
    ever = ["log", "--all", "HEAD", "--format=", "--name-only", "--relative", "-z", "--", f"{RAW.as_posix()}/*.dvc"]
    raw = {path.strip("\n") for path in (run_git(root, *ever) or "").split("\0")}
    paths = [LOCK, PARAMS, COUNTS, IGNORE, *sorted(path for path in raw if _is_pointer(path))]
    names = {f"{commit[0]}:./{path}": (commit, path) for commit in commits for path in paths}
    files: dict[tuple[str, str, str], dict[str, bytes]] = {commit: {} for commit in commits}
    for name, content in git_files(root, list(names)).items():
        commit, path = names[name]
        files[commit][path] = content
    return [Record(files[commit], commit) for commit in commits]


def _is_pointer(path: str) -> bool:
    return Path(path).parent == RAW and path.endswith(".dvc")


def _sum(path: str, content: bytes) -> str:
    try:
        return str(parse_yaml(content, unique_keys=False)["outs"][0]["md5"])
    except (YamlTextError, KeyError, TypeError, IndexError) as error:
        raise UserError("the .dvc file cannot be read", where=path, found=error, hint=f"git checkout {path}") from error


def _images(files: Mapping[str, bytes]) -> int | None:
    try:
        return int(parse_yaml(files[COUNTS], unique_keys=False)["images"])
    except (KeyError, TypeError, ValueError):
        return None  # not committed, or of another program: no number is shown
