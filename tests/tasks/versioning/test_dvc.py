"""DVC and git in a small temporary repository."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from models.errors import UserError
from tasks.core.locks import locked
from tasks.versioning import dvc

PARAMS = """\
# how it is trained
train:
  lr: 1e-2      # per step
  name: 'quoted'
  classes:
    - a
    - b
seed: 1
"""

PIPELINE = """\
stages:
  ingest:
    cmd: mkdir -p out && cp source.txt out/copy.txt
    deps: [source.txt]
    outs: [out]
  partition:
    cmd: cp out/copy.txt parts.txt && echo "$(which dvc)"
    deps: [out]
    params: [seed]
    outs: [parts.txt]
"""


def test_params_keep_comments_order_and_quotes(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS)
    assert dvc.write_params(path, {"train.lr": 0.05, "seed": 7})
    assert path.read_text() == PARAMS.replace("1e-2 ", "0.05 ").replace("seed: 1", "seed: 7")
    assert not dvc.write_params(path, {"seed": 7})
    assert [entry.name for entry in tmp_path.iterdir()] == ["params.yaml"]


def test_unknown_params_are_refused_unless_asked_for(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS)
    with pytest.raises(UserError, match=r"train\.lrr.*\n.*lr, name, classes"):
        dvc.write_params(path, {"train.lrr": 1})
    with pytest.raises(UserError, match="not a section"):
        dvc.write_params(path, {"seed.more": 1}, create=True)
    assert path.read_text() == PARAMS
    dvc.write_params(path, {"new.deep": [1, 2]}, create=True)
    assert "new:\n  deep:\n    - 1\n    - 2\n" in path.read_text()
    path.write_text("a:\n    b: 1\n    c:\n    - 1\n")
    dvc.write_params(path, {"a.b": 2})
    assert path.read_text() == "a:\n    b: 2\n    c:\n    - 1\n"
    path.write_text("a: [1")
    with pytest.raises(UserError, match="not valid YAML"):
        dvc.write_params(path, {"a": 1})


def test_outside_a_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert dvc.git_commit(tmp_path) is None
    assert dvc.git_dirty(tmp_path) is None
    assert dvc.data_version(tmp_path) is None
    with pytest.raises(UserError, match="git init && dvc init"):
        dvc.check_repository(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert dvc.git_commit(tmp_path) is None


def test_data_version_needs_all_stages_and_follows_the_sums(tmp_path):
    def lock(ingest: str, partition: str) -> None:
        (tmp_path / "dvc.lock").write_text(
            "schema: '2.0'\nstages:\n"
            f"  ingest: {{cmd: x, outs: [{{path: a, md5: {ingest}}}]}}\n"
            f"  partition: {{cmd: y, outs: [{{path: b, md5: {partition}}}]}}\n"
        )

    lock("aa", "bb")
    first, alone = dvc.data_version(tmp_path), dvc.data_version(tmp_path, ["ingest"])
    lock("aa", "cc")
    assert dvc.data_version(tmp_path) != first
    assert dvc.data_version(tmp_path, ["ingest"]) == alone
    assert dvc.data_version(tmp_path, ["ingest", "other"]) is None
    (tmp_path / "dvc.lock").write_text("- a\n- b\n")
    with pytest.raises(UserError, match=r"dvc\.lock cannot be read"):
        dvc.data_version(tmp_path)


def _run(root: Path, *command: str) -> None:
    subprocess.run(command, cwd=root, check=True, capture_output=True, env={**os.environ, "DVC_NO_ANALYTICS": "1"})


@pytest.fixture
def repository(tmp_path):
    _run(tmp_path, "git", "init", "-q")
    with pytest.raises(UserError, match="dvc init"):
        dvc.check_repository(tmp_path)
    _run(tmp_path, sys.executable, "-m", "dvc", "init", "-q")
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "params.yaml").write_text(PARAMS)
    (tmp_path / "source.txt").write_text("one")
    return tmp_path


@pytest.mark.integration
def test_repro_commit_and_data_version(repository):
    lines: list[str] = []
    assert dvc.repro(repository, "partition", single=False, echo=lines.append)
    assert str(Path(sys.executable).parent / "dvc") in lines
    first = dvc.data_version(repository)
    assert first is not None
    assert not dvc.repro(repository, "partition", single=False)

    # What a flow did by itself: new data, same outputs as the stages would make, then recorded
    (repository / "source.txt").write_text("two")
    (repository / "out" / "copy.txt").unlink()
    (repository / "out" / "copy.txt").write_text("two")
    (repository / "parts.txt").unlink()
    (repository / "parts.txt").write_text("two")
    dvc.commit(repository, ["ingest", "partition"])
    assert dvc.data_version(repository) != first
    assert not dvc.repro(repository, "partition", single=False)


def test_a_user_error_is_parsed_from_a_commands_output():
    error = UserError("one", where="a: b", expected="x", found="p\n    q\n  r: s", hint="do: it")
    lines = ["Running stage 'ingest':", "error: an earlier one", "", *f"error: {error}".splitlines(), "ERROR: exited"]
    assert str(UserError.from_lines(lines)) == str(error)
    assert UserError.from_lines(["ERROR: failed", "Traceback"]) is None


@pytest.mark.integration
def test_a_stages_user_error_is_passed_on(repository):
    program = "print('error: no images' + chr(10) + '  where: here' + chr(10) + '  hint: look'); raise SystemExit(2)"
    (repository / "dvc.yaml").write_text(f'stages: {{ingest: {{cmd: "{sys.executable} -c \\"{program}\\""}}}}')
    with pytest.raises(UserError) as raised:
        dvc.repro(repository, "ingest", single=False)
    assert str(raised.value) == "DVC's stage ingest: no images\n  where: here\n  hint: look"


def test_a_refusing_stage_exits_with_code_2(tmp_path):
    command = [sys.executable, "-m", "flows.cli.main", "stage", "federate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr and "Exit" not in done.stderr


@pytest.mark.integration
def test_failures_and_a_held_lock_are_reported(repository):
    (repository / "source.txt").unlink()
    with pytest.raises(UserError, match=r"dvc repro --single-item ingest failed(.*\n)+.*source\.txt"):
        dvc.repro(repository, "ingest")
    lock = repository / ".dvc" / "tmp" / "fedscene.lock"
    with locked(lock.parent, "runs dvc repro x", file=lock), pytest.raises(UserError, match="that runs dvc repro x"):
        dvc.repro(repository, "ingest", wait=0.1)


@pytest.mark.integration
def test_an_interrupt_stops_the_stage_too(repository):
    (repository / "dvc.yaml").write_text("stages: {ingest: {cmd: 'echo $$; exec sleep 60'}}")

    def stop(line: str) -> None:
        if line.isdigit():
            seen.append(int(line))
            raise KeyboardInterrupt

    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        dvc.repro(repository, "ingest", echo=stop)
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(seen[0], 0)
            time.sleep(0.1)
    lock = repository / ".dvc" / "tmp" / "fedscene.lock"
    with locked(lock.parent, "tests", wait_s=0, refusal="still held", file=lock):
        pass


@pytest.mark.integration
def test_commit_and_dirty_flag(repository):
    assert dvc.git_commit(repository) is None
    _run(repository, "git", "add", "-A")
    _run(repository, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first")
    sha = dvc.git_commit(repository)
    assert sha is not None and len(sha) == 40 and dvc.git_dirty(repository) is False
    (repository / "params.yaml").write_text("seed: 2\n")
    assert dvc.git_dirty(repository) is True
