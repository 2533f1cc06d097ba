"""What a failed or killed command changed is rolled back: settings, ``dvc.lock``, outputs that left the workspace."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from flows import pipeline
from flows.settings.files import load_settings
from flows.settings.schema import as_values
from models.errors import UserError
from tasks.core.yaml_text import dump_yaml
from tasks.versioning import dvc
from tests.support.projects import LocalTask, git

PIPELINE = """\
stages:
  ingest:
    cmd: >-
      python -c "import os, ruamel.yaml; path = ruamel.yaml.YAML().load(open('params.yaml'))['ingest']['path'];
      os.makedirs('data/dataset'); open('data/dataset/all', 'w').write(str(path));
      open('data/ingest.json', 'w').write(str(len(path or '')));
      assert path != '/nope', 'error'"
    params: [ingest]
    outs: [data/dataset]
    metrics: [{data/ingest.json: {cache: false}}]
  partition:
    cmd: python -c "import shutil; shutil.copytree('data/dataset', 'data/clients'); open('data/clients/sometimes')"
    deps: [data/dataset, sometimes]
    outs: [data/clients]
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with two stages, run once. ``ingest`` refuses /nope; ``partition`` needs the file ``sometimes``."""
    root = tmp_path_factory.mktemp("undo") / "repository"
    (root / "data").mkdir(parents=True)
    git(root, "init", "-q")
    subprocess.run(["dvc", "init", "-q"], cwd=root, check=True)
    pipeline = PIPELINE.replace("; open('data/clients/sometimes')", "")
    (root / "dvc.yaml").write_text(pipeline)
    (root / "sometimes").write_text("1")
    values = as_values(load_settings(None, ["tiny"], ["ingest.path=one"]))
    (root / "params.yaml").write_text("# mine\n" + dump_yaml(values))
    dvc.repro(root, "partition", single=False)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "made")
    return root


def everything(root: Path) -> dict[str, str]:
    files = [path for path in (root / "data").rglob("*") if path.is_file()]
    return {str(path): path.read_text() for path in (*files, root / "params.yaml", root / "dvc.lock")}


class Stages:
    """The flow ``pipeline`` as a deployment runs it: its data stages under DVC, without server and training."""

    def __init__(self, root: Path, monkeypatch, capsys) -> None:
        self.root, self.monkeypatch, self.capsys = root, monkeypatch, capsys
        for name in ("federate_stage", "report_stage"):
            monkeypatch.setattr(pipeline, name, lambda *_: None)
        monkeypatch.setattr(pipeline, "dvc_record", LocalTask(lambda *_: None))

    def __call__(self, *overrides: str, stages: bool = True) -> list[str]:
        """Run the flow, with or without the stages; return the lines that it printed."""
        self.monkeypatch.setattr(pipeline, "dvc_stage", LocalTask(dvc.repro if stages else lambda *_, **__: None))
        pipeline.pipeline.fn(str(self.root), list(overrides))
        return self.capsys.readouterr().out.splitlines()

    def kill(self, *overrides: str) -> None:
        """Run the flow in a process that is killed when ``ingest`` has removed its output."""
        child = os.fork()
        if not child:
            self.monkeypatch.setattr(pipeline, "dvc_stage", LocalTask(_die))
            with contextlib.suppress(BaseException):
                pipeline.pipeline.fn(str(self.root), list(overrides))
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _die(*_, **__) -> None:
    shutil.rmtree("data/dataset")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def run(repository, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    return Stages(repository, monkeypatch, capsys)


@pytest.mark.integration
def test_a_failed_override_is_rolled_back(run, repository):
    before = everything(repository)
    output = "\n".join(run("ingest.path=/nope"))
    assert everything(repository) == before and git(repository, "status", "--porcelain") == ""
    assert "params.yaml: ingest.path: one -> /nope" in output and "ingest failed" in output
    assert "rolled back: params.yaml, data/dataset" in output
    # A later stage fails, after ingest has made something new
    (repository / "sometimes").unlink()
    output = "\n".join(run("ingest.path=two"))
    assert everything(repository) == before and "partition" in output
    (repository / "sometimes").write_text("1")
    assert run(stages=False) == [] and everything(repository) == before  # the next run finds everything unchanged
    output = "\n".join(run("ingest.path=two", stages=False))  # a successful run keeps its settings
    assert "path: two" in (repository / "params.yaml").read_text() and "rolled back:" not in output
    git(repository, "checkout", "params.yaml")


@pytest.mark.integration
def test_the_users_settings_stay_and_lost_outputs_are_restored(run, repository):
    edited = (repository / "params.yaml").read_text().replace("path: one", "path: /nope")
    (repository / "params.yaml").write_text(edited)
    before = everything(repository)
    output = run()
    git(repository, "checkout", "params.yaml")
    assert everything(repository) | {str(repository / "params.yaml"): edited} == before
    assert output[0] == "rolled back: data/dataset" and "ingest failed" in "\n".join(output)


@pytest.mark.integration
def test_the_next_run_rolls_back_what_a_killed_run_changed(run, repository):
    before = everything(repository)
    run.kill("ingest.path=/nope")
    output = run(stages=False)
    assert everything(repository) == before
    assert "was killed; rolled back: params.yaml, data/dataset" in output[0]
    assert run(stages=False) == []

    run.kill("ingest.path=/nope")  # and edited by hand since: the edit is the user's
    edited = (repository / "params.yaml").read_text() + "# later\n"
    (repository / "params.yaml").write_text(edited)
    output = run(stages=False)
    assert "not params.yaml, which was edited since" in output[0]
    assert (repository / "params.yaml").read_text() == edited and (repository / "data/dataset/all").exists()
    git(repository, "checkout", "params.yaml")

    run.kill("ingest.path=/nope")  # and committed since: it is wanted
    git(repository, "commit", "-qam", "wanted")
    assert run(stages=False) == [] and "path: /nope" in (repository / "params.yaml").read_text()


@pytest.mark.integration
def test_raw_data_moved_aside_by_a_killed_add_are_restored(run, repository):
    aside = repository / "data/raw/.incoming/.old/photos"
    aside.mkdir(parents=True)
    (aside / "1.jpg").write_text("one")
    assert "data/raw/photos" in "".join(run(stages=False)) and run(stages=False) == []
    assert (repository / "data/raw/photos/1.jpg").read_text() == "one"
    assert not (repository / "data/raw/.incoming").exists()


def test_concurrent_commands_and_a_damaged_journal_are_refused(tmp_path):
    from tasks.versioning.rollback import JOURNAL, undoable

    (tmp_path / "params.yaml").write_text("seed: 1\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    with undoable(tmp_path, "the first", print) as change:
        change({"params.yaml": b"seed: 2\n"})
        with pytest.raises(UserError, match=r"(?s)another command.*the first"), undoable(tmp_path, "the second", print):
            pass
    assert (tmp_path / "params.yaml").read_text() == "seed: 2\n" and not (tmp_path / JOURNAL).exists()
    (tmp_path / JOURNAL).write_text("{")
    with pytest.raises(UserError, match=r"(?s)damaged.*rm "), undoable(tmp_path, "the third", print):
        pass
