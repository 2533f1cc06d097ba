"""The command line, called in this process."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from flows.cli.data import data_app  # noqa: F401 - its commands are reached through app
from flows.cli.main import app

runner = CliRunner()


def call(*arguments: str):
    return runner.invoke(app, list(arguments))


def test_help_answers_without_heavy_imports():
    heavy = ["torch", "torchvision", "timm", "sklearn", "pandas", "mlflow", "prefect", "dvc", "open_clip", "matplotlib"]
    code = (
        "import sys; from typer.testing import CliRunner; from flows.cli.main import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "assert CliRunner().invoke(app, ['settings', '--preset', 'tiny']).exit_code == 0;"
        "assert CliRunner().invoke(app, ['--version']).exit_code == 0;"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_prints_the_versions_of_the_main_packages():
    from importlib.metadata import version

    done = call("--version")
    assert done.exit_code == 0
    shown = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert shown["python"] == sys.version.split()[0]
    assert {name: shown[name] for name in ("fedscene", "torch", "prefect", "dvc", "mlflow")} == {
        name: version(name) for name in ("fedscene", "torch", "prefect", "dvc", "mlflow")
    }


COMMANDS = [
    "run",
    "pipeline",
    "report",
    "compare",
    "log-models",
    "settings",
    "methods",
    "data",
    "replicate",
    "fidelity",
]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    done = call(name, "--help")
    assert done.exit_code == 0 and "Usage" in done.stdout


def test_methods_lists_all_methods_networks_and_presets():
    found = json.loads(call("methods", "--json").stdout)
    assert set(found["methods"]) >= {"fedavg", "fmman"} and "AISTATS" in found["methods"]["fedavg"]
    assert set(found["models"]) >= {"fmman", "resnet18"}
    assert {"tiny", "demo"} <= set(found["presets"])
    assert {"mean", "fedadam", "krum"} <= set(found["aggregators"]) and "ICLR" in found["aggregators"]["fedadam"]
    assert set(found["update transforms"]) == {"bf16", "clip_norm", "int8", "sign_flip", "topk"}


def test_printed_settings_can_be_read_again(tmp_path):
    first = call("settings", "--preset", "tiny", "--set", "seed=11").stdout
    (tmp_path / "p.yaml").write_text(first)
    assert call("settings", "--params", str(tmp_path / "p.yaml")).stdout == first
    assert json.loads(call("settings", "--preset", "tiny", "--json").stdout)["federation"]["rounds"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--preset", "tiny", "--set", "train.lr=fast"),
        ("run", "--preset", "tinny"),
        ("run", "--preset", "tiny", "--set", "ingest.source=voc", "--set", "ingest.path=no/such/folder"),
        ("run", "--preset", "tiny", "--set", "tracking.uri=http://127.0.0.1:9"),
        ("run", "--preset", "tiny", "--set", "federation.device=cuda:0"),
        ("pipeline", "--preset", "tiny"),
        ("report", "no-such-run"),
        ("data", "show"),
    ],
)
def test_a_user_error_is_one_message_and_exit_code_2(arguments, tmp_path, monkeypatch):
    if "federation.device=cuda:0" in arguments:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a CUDA device")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    done = call(*arguments, "--json")
    assert done.exit_code == 2, done.output
    error = json.loads(done.stdout)["error"]
    assert error["what"] and (error.get("where") or error.get("hint"))
    assert done.stderr.startswith("error: ") and "Traceback" not in done.output


def test_the_error_on_a_missing_clip_checkpoint_names_the_alternative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    quick = ["ingest.synthetic.images=80", "ingest.synthetic.sites=2", "ingest.image_size=32", "partition.min_size=8"]
    sets = [*quick, "model.labels.source=clip", "model.labels.clip_checkpoint=weights/none.safetensors"]
    done = call("run", "--preset", "tiny", *(part for text in sets for part in ("--set", text)))
    assert done.exit_code == 2
    assert "weights/none.safetensors" in done.stderr and "hash" in done.stderr


def test_fidelity_refuses_too_few_seeds_and_unwritable_reports():
    for options, said in (
        (["--seeds", "1"], "too few seeds for a verdict"),
        (["--seeds", "1,x"], "not seeds"),
        (["--seeds", "1,2,3", "--out", "/dev/null/x/report.md"], "cannot write there"),
    ):
        done = call("fidelity", *options)
        assert done.exit_code == 2 and said in done.output
