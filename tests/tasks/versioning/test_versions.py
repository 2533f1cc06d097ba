"""Versions of raw data and of the data sets made from them, in a small git and DVC repository."""

import importlib.util
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.errors import UserError
from tasks.versioning import dvc, raw_data, remote, restore, versions
from tests.support.projects import ROOT, git

pytestmark = pytest.mark.integration

PIPELINE = """\
stages:
  ingest:
    cmd: mkdir -p data/dataset && cat data/raw/*/*.jpg > data/dataset/all && echo '{"images":' $(ls data/raw/*/*.jpg
      | wc -l)'}' > data/ingest.json
    deps: [data/raw]
    params: [seed, ingest]
    outs: [data/dataset]
    metrics: [{data/ingest.json: {cache: false}}]
  partition:
    cmd: mkdir -p data/clients && cp data/dataset/all data/clients/a
    deps: [data/dataset]
    params: [partition]
    outs: [data/clients]
"""
PARAMS = "seed: 1  # any\ningest:\n  path: null\n  aliases: {}\npartition: {clients: 2}\ntrain: {lr: 0.1}\n"


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "elsewhere" / "photos"
    (folder / "sub").mkdir(parents=True)
    for name, content in {"1.jpg": "one", "2.jpg": "two", "sub/notes.tmp": "kept too"}.items():
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    root = tmp_path / "repository"
    (root / "data" / "raw").mkdir(parents=True)
    (root / "data" / "raw" / "README.md").write_text("here")
    for name in (".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    git(root, "init", "-q")
    subprocess.run(["dvc", "init", "-q"], cwd=root, check=True)
    shutil.copy(ROOT / ".dvcignore", root / ".dvcignore")
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / "params.yaml").write_text(PARAMS)
    commit(root)
    return root


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a commit")


def make(root: Path, source: Path) -> str:
    """Add, run the stages, commit; return the version."""
    added = raw_data.add(root, source)
    dvc.write_params(root / "params.yaml", {"ingest.path": added.path})
    dvc.repro(root, "partition", single=False)
    commit(root)
    return str(versions.present_version(root).id)


def everything(root: Path) -> dict[str, str]:
    files = (path for path in (root / "data").rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_text() for path in files}


@pytest.mark.parametrize("name", [".hidden", "-x", "a/b", "x.dvc", "README.md", ""])
def test_unsafe_names_are_refused(repository, photos, name):
    if name:
        with pytest.raises(UserError, match="invalid name"):
            raw_data.planned_path(repository, photos, name)
    else:
        assert raw_data.planned_path(repository, photos, name) == "data/raw/photos"


def test_invalid_sources_are_refused(repository, photos):
    part = repository / "data" / "raw" / "a" / "b"
    part.mkdir(parents=True)
    for source, why in (
        (photos / "no", "no such file"),
        (repository, "contains data/raw"),
        (part, "hint: .*add data/raw/a"),
    ):
        with pytest.raises(UserError, match=rf"(?s){why}"):
            raw_data.planned_path(repository, source)
    with pytest.raises(UserError, match="name already"):
        raw_data.planned_path(repository, part.parent, "c")


def test_unreadable_files_are_named_and_nothing_is_added(repository, photos):
    (photos / "gone.jpg").symlink_to("/nowhere/x.jpg")
    (photos / "sub" / "round").symlink_to(photos)
    os.mkfifo(photos / "pipe")
    with pytest.raises(UserError, match=r"(?s)gone\.jpg.*pipe.*round"):
        raw_data.add(repository, photos)
    assert [path.name for path in (repository / "data" / "raw").iterdir()] == ["README.md"]


def test_settings_that_change_are_found():
    now = {"seed": 1, "ingest": {"path": "a", "aliases": {"x": "y"}, "voc": {"root": None}}}
    then = {"seed": 2, "ingest": {"path": "b", "aliases": {}, "voc": {"root": None}}}
    assert dvc.nested_changes(now, then) == {"seed": 2, "ingest.path": "b", "ingest.aliases": {}}
    newer = {"ingest": {"path": "a", "later": 5}}
    assert dvc.nested_changes(newer, {"ingest": {"path": "b"}}) == {"ingest": {"path": "b"}}
    assert dvc.nested_changes(now, now) == {}


@pytest.mark.integration
def test_changed_raw_data_are_a_new_version_and_the_old_one_can_be_restored(repository, photos):
    first = make(repository, photos)
    before = everything(repository)
    assert before["data/dataset/all"] == "onetwo" and before["data/raw/photos/sub/notes.tmp"] == "kept too"
    (photos / "1.jpg").write_text("uno")
    added = raw_data.add(repository, photos)
    assert (added.change, added.files, added.left_out) == ("changed", 3, 0)
    commit(repository)  # raw data are new, the data set is not made yet
    assert versions.present_version(repository).id == first
    dvc.repro(repository, "partition", single=False)
    commit(repository)
    second = versions.present_version(repository)
    assert second.id != first and everything(repository)["data/dataset/all"] == "unotwo"
    listed = versions.versions(repository)
    assert [version.id for version in listed] == [second.id, first, first]
    assert [version.images for version in listed] == [2, 2, 2]
    assert listed[0].raw == listed[1].raw != listed[2].raw

    dvc.write_params(repository / "params.yaml", {"train.lr": 0.5})  # not the data's, not committed
    restore.restore(repository, versions.find_version(repository, first[:8]))
    assert everything(repository) == before
    assert versions.present_version(repository) == listed[2]
    params = (repository / "params.yaml").read_text()
    assert "lr: 0.5" in params and "# any" in params
    assert not dvc.repro(repository, "partition", single=False)  # DVC finds it unchanged too

    restore.restore(repository, versions.find_version(repository, "HEAD"))
    assert versions.present_version(repository) == second
    assert everything(repository)["data/dataset/all"] == "unotwo"


@pytest.mark.integration
def test_what_no_commit_or_cache_holds_is_not_overwritten(repository, photos, tmp_path):
    first = versions.find_version(repository, make(repository, photos))
    (photos / "1.jpg").write_text("uno")
    raw_data.add(repository, photos)
    with pytest.raises(UserError, match=r"uncommitted changes(.*\n)+.*data/raw/photos\.dvc"):
        restore.restore(repository, first)
    make(repository, photos)
    photo = repository / "data" / "raw" / "photos" / "1.jpg"
    photo.unlink()
    photo.write_text("edited")
    for call in (lambda: restore.restore(repository, first), lambda: raw_data.add(repository, photos)):
        with pytest.raises(UserError, match=r"would be lost(.*\n)+.*data add data/raw/photos"):
            call()
    assert photo.read_text() == "edited"
    assert raw_data.add(repository, photo.parent).change == "changed"  # in place
    commit(repository)
    dvc.write_params(repository / "params.yaml", {"ingest.aliases": {"a": "b"}, "seed": 3})
    with pytest.raises(UserError, match=r"settings(.*\n)+.*found: seed, ingest\.path|ingest\.aliases"):
        restore.restore(repository, first)
    assert photo.read_text() == "edited" and "seed: 3" in (repository / "params.yaml").read_text()

    other = tmp_path / "photos"
    other.mkdir()
    (other / "z.jpg").write_text("z")
    with pytest.raises(UserError, match=r"other data of this name(.*\n)+.*another path"):
        raw_data.add(repository, other)
    assert raw_data.add(repository, other, "others").change == "new"
    assert raw_data.add(repository, other, "photos", replace=True).change == "changed"
    assert not photo.exists()


@pytest.mark.integration
def test_restoring_removes_raw_data_added_later(repository, photos, tmp_path):
    first = make(repository, photos)
    more = tmp_path / "more.jpg"
    more.write_text("more")
    (tmp_path / "more").mkdir()
    shutil.move(more, tmp_path / "more" / "3.jpg")
    second = make(repository, tmp_path / "more")
    restore.restore(repository, versions.find_version(repository, first))
    assert not (repository / "data" / "raw" / "more").exists()
    assert not dvc.repro(repository, "partition", single=False)
    restore.restore(repository, versions.find_version(repository, second))
    assert (repository / "data" / "raw" / "more" / "3.jpg").read_text() == "more"


@pytest.mark.integration
def test_push_and_pull_through_a_folder(repository, photos, tmp_path):
    make(repository, photos)
    with pytest.raises(UserError, match="fedscene data remote URL"):
        remote.push(repository)
    where = remote.set_remote(repository, str(tmp_path / "store"))
    assert (where.name, where.url) == ("storage", str(tmp_path / "store"))
    commit(repository)
    before = everything(repository)
    assert remote.push(repository)[1] > 0 and remote.push(repository)[1] == 0
    for gone in (".dvc/cache", "data/raw/photos", "data/dataset", "data/clients"):
        shutil.rmtree(repository / gone)
    remote.set_remote(repository, str(tmp_path / "empty"))
    with pytest.raises(UserError, match="neither in DVC's cache nor"):
        remote.push(repository)
    remote.set_remote(repository, str(tmp_path / "store"))
    assert remote.pull(repository)[1] > 0
    assert everything(repository) == before

    (photos / "1.jpg").write_text("uno")
    second = make(repository, photos)
    shutil.rmtree(repository / ".dvc" / "cache")
    subprocess.run(["dvc", "commit", "-f"], cwd=repository, check=True, capture_output=True)  # only the present ones
    restore.restore(repository, versions.find_version(repository, "HEAD~1"))
    assert everything(repository) == before
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(repository / ".dvc" / "cache")
    subprocess.run(["dvc", "commit", "-f"], cwd=repository, check=True, capture_output=True)
    with pytest.raises(UserError, match="cannot be fetched from the remote"):
        restore.restore(repository, versions.find_version(repository, second))
    assert everything(repository) == before  # everything is restored


def test_remotes_are_checked_before_dvc_is_asked(repository, monkeypatch):
    with pytest.raises(UserError, match=r"(?s)password.*dvc remote modify --local"):
        remote.set_remote(repository, "ssh://me:secret@host/data")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("dvc_s") else found(name))
    for url, extra in (("s3://bucket/data", r"fedscene\[s3\]"), ("ssh://me@host/data", r"fedscene\[ssh\]")):
        with pytest.raises(UserError, match=rf"pip install '{extra}'"):
            remote.set_remote(repository, url)
    with pytest.raises(UserError, match="invalid name"):
        remote.set_remote(repository, "store", "a b")


@pytest.mark.integration
def test_the_version_of_a_run_is_found_by_its_tag(repository, photos, monkeypatch, tmp_path):
    from flows.cli.versions import data_app, find_data_version
    from tasks.tracking import mlflow_runs
    from tasks.tracking.settings import TrackingSettings

    first = make(repository, photos)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    tags = {"fedscene.run_id": "fedavg-1", "fedscene.data_version": first}
    mlflow_id = mlflow_runs.open_run(TrackingSettings(), tmp_path / "runs", "r", {}, tags)
    (photos / "1.jpg").write_text("uno")
    assert make(repository, photos) != first
    monkeypatch.chdir(repository)
    (repository / "params.yaml").unlink()  # not this program's settings; the defaults name the same store
    for run in (mlflow_id, "fedavg-1"):
        version = find_data_version(run)
        assert version.id == first and version.commit == git(repository, "rev-parse", "HEAD~1").strip()
    with pytest.raises(UserError, match="nonesuch"):
        find_data_version("nonesuch")
    assert version.images == 2

    def printed(*arguments: str) -> dict:
        return json.loads(CliRunner().invoke(data_app, [*arguments, "--json"]).stdout)

    listed = printed("versions")["versions"]
    assert [one["present"] for one in listed] == [True, False] and listed[1]["version"] == first
    assert printed("version", "--run", "fedavg-1") == {k: v for k, v in listed[1].items() if k != "present"}
    assert "--run" in printed("restore")["error"]["what"] and "no remote" in printed("push")["error"]["what"]


def test_settings_of_a_version_are_restored_under_their_present_names(repository):
    (repository / "params.yaml").write_text("ingest: {path: data/raw/now}\n")
    commit(repository)
    now = versions.present_record(repository)
    then = replace(now, files={"params.yaml": b"ingest: {folder: data/raw/then}\n"})

    def translate(params):
        ingest = params["ingest"]
        return {"ingest": {"path": ingest["folder"]} if "folder" in ingest else ingest}

    settings, changes = restore.restored_settings(repository, now, then, translate)
    assert settings["ingest"] == {"path": "data/raw/then"}
    assert changes == {"ingest.path": "data/raw/then"}
