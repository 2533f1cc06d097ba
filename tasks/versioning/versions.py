"""Versions of the data: which there are in git's history.

A version is what the data stages put out, as ``dvc.lock`` records it, with the raw data of ``data/raw/*.dvc`` that
lay there. git keeps both files, DVC's cache and remote the bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from models.errors import UserError
from tasks.core.yaml_text import YamlTextError, parse_yaml
from tasks.versioning.dvc import check_repository, parse_lock, version_of
from tasks.versioning.git import git_files, run_git
from tasks.versioning.raw_data import IGNORE, RAW
from tasks.versioning.repository import is_shallow

LOCK, PARAMS, COUNTS = "dvc.lock", "params.yaml", "data/ingest.json"


@dataclass(frozen=True)
class Version:
    """One state of the data.

    Attributes:
        id: ``versioning.data_version``; None for raw data that were not ingested yet.
        raw: Name below ``data/raw`` -> DVC's sum over it.
        images: Images in the data set, where ``data/ingest.json`` says.
        commit: The first commit that has it; None when it is in none yet.
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
        """What makes it another version."""
        return self.id, tuple(sorted(self.raw.items()))


@dataclass(frozen=True)
class Record:
    """The files that name data, in a commit or now.

    Attributes:
        files: Path relative to the repository -> content: ``dvc.lock``, ``params.yaml``, ``data/raw/*.dvc``, ...
        commit: Sha, date and subject; empty for what lies there now.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    commit: tuple[str, str, str] | tuple[()] = ()

    @property
    def pointers(self) -> list[str]:
        """The ``data/raw/*.dvc`` files."""
        return sorted(path for path in self.files if _is_pointer(path))

    @property
    def stages(self) -> dict[str, Any]:
        """What ``dvc.lock`` says of every stage."""
        where = f"commit {self.commit[0]}" if self.commit else LOCK
        return parse_lock(self.files[LOCK], where) if LOCK in self.files else {}

    @property
    def version(self) -> Version:
        """The version of the data that they name."""
        made = version_of(self.stages)
        images = _images(self.files) if made else None
        return Version(
            made, {Path(path).stem: _sum(path, self.files[path]) for path in self.pointers}, images, *self.commit
        )


def present_version(root: Path) -> Version:
    """The version that ``dvc.lock`` and ``data/raw/*.dvc`` name now; its commit where it is in git's history.

    Raises:
        UserError: If the folder is no DVC repository, or ``dvc.lock`` is damaged.
    """
    check_repository(root)
    now = present_record(root).version
    known = next((version for version in versions(root) if version.key == now.key), None)
    return replace(known, images=now.images) if known else now


def versions(root: Path) -> list[Version]:
    """Every version that git's branches and tags know, the newest first, each by its first commit.

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
    """The version with this id (or its beginning, 4 digits or more), or that of a commit, branch or tag.

    Raises:
        UserError: If there is none, or several begin so.
    """
    known = versions(root)
    # Of one id with several raw data (added, not yet ingested) the earliest is what it was made from
    by_id = {version.id: version for version in known if version.id and version.id.startswith(wanted)}
    if len(wanted) >= 4 and len(by_id) == 1:
        return next(iter(by_id.values()))
    if len(wanted) >= 4 and by_id:
        raise UserError("Several versions begin so", where=wanted, found=", ".join(map(str, by_id)))
    sha = run_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
    if sha:
        version = commit_record(root, sha).version
        if version.id or version.raw:
            return version
        raise UserError("This commit names no data", where=wanted, expected=f"{LOCK} or {RAW}/*.dvc in it")
    hint = "fedscene data versions lists them; what was never committed, or only on another machine, is not there"
    if is_shallow(root):
        hint = "git fetch --unshallow: this clone lacks a part of the history"
    raise UserError("No commit here has this version of the data", where=wanted, hint=hint)


def commit_record(root: Path, sha: str) -> Record:
    """A commit's files that name data, and those outputs of its stages that git keeps: the metrics."""
    record = _read(root, _log(root, "-1", sha))[0]
    paths = [out["path"] for stage in record.stages.values() for out in stage.get("outs", [])]
    found = git_files(root, [f"{sha}:./{path}" for path in paths])
    return replace(record, files=record.files | {name.partition(":./")[2]: data for name, data in found.items()})


def present_record(root: Path) -> Record:
    """The same files as they lie there now."""
    paths = [LOCK, PARAMS, COUNTS, IGNORE, *(f"{RAW.as_posix()}/{file.name}" for file in (root / RAW).glob("*.dvc"))]
    return Record({path: (root / path).read_bytes() for path in paths if (root / path).is_file()})


def recorded(root: Path) -> list[str]:
    """What DVC can be asked about by name: ``data/raw/*.dvc`` and the stages that ``dvc.lock`` has an entry of."""
    record = present_record(root)
    known = (parse_yaml((root / "dvc.yaml").read_bytes(), unique_keys=False) or {}).get("stages") or {}
    return [*record.pointers, *(stage for stage in record.stages if stage in known)]


def committed_params(root: Path) -> list[dict[str, Any]]:
    """``params.yaml`` of the present commit and of every commit that touches what names data."""
    records = [*_read(root, _log(root, "-1")), *_history(root)]
    return [
        dict(parse_yaml(record.files[PARAMS], unique_keys=False) or {}) for record in records if PARAMS in record.files
    ]


def _log(root: Path, *arguments: str) -> list[tuple[str, str, str]]:
    lines = run_git(root, "log", "--format=%H%x00%cI%x00%s", *arguments) or ""
    parts = (line.split("\0", 2) for line in lines.splitlines())
    return [(sha, date, subject) for sha, date, subject in parts]


def _history(root: Path) -> list[Record]:
    """Commits of branches and tags that touch what names data, the newest first."""
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
        raise UserError("The .dvc file cannot be read", where=path, found=error, hint=f"git checkout {path}") from error


def _images(files: Mapping[str, bytes]) -> int | None:
    try:
        return int(parse_yaml(files[COUNTS], unique_keys=False)["images"])
    except (KeyError, TypeError, ValueError):
        return None  # not committed, or of another program; the list then has no number
