"""Every Python block of the documentation runs, as a reader would copy it."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from flows.cli.main import app
from tasks.client.objectives import Loss
from tasks.client.regularisers import Regulariser
from tests.support.projects import QUICK, ROOT


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [pytest.param(block, id=f"{page.name}-{n}") for page in PAGES for n, block in enumerate(blocks(page), 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a reader of the documentation is: a finished run in MLflow, a photograph."""
    root = tmp_path_factory.mktemp("reader")
    Image.fromarray(np.full((60, 80, 3), 90, np.uint8)).save(root / "photo.jpg")
    network = ("model.name=resnet18", "method.name=ditto", "federation.rounds=1", "tracking.site_models=last")
    sets = [part for text in (*QUICK, *network) for part in ("--set", text)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("FEDSCENE_RUNS", str(root / "runs"))
        done = CliRunner().invoke(app, ["run", "--preset", "tiny", *sets])
    assert done.exit_code == 0, done.output
    return root


@pytest.mark.integration
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_documentation_runs(folder, block):
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=folder, env=own, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout


def test_the_documentation_has_blocks():
    assert any("mlflow.pyfunc.load_model" in block for page in PAGES for block in blocks(page))


def test_contributings_regulariser_adds_what_it_says():
    (block,) = [block for block in blocks(ROOT / "CONTRIBUTING.md") if "(Regulariser)" in block]
    names = {
        "Regulariser": Regulariser,
        "Loss": Loss,
        "Tensor": torch.Tensor,
        "replace": replace,
        "torch": torch,
    }
    exec(block, names)  # noqa: S102 - our own page
    (made,) = [value for value in names.values() if isinstance(value, type) and issubclass(value, Regulariser)][1:]
    regulariser = made.__new__(made)
    regulariser.mu, regulariser.start = 0.5, [torch.tensor([1.0, 2.0])]
    regulariser.parameters = [torch.tensor([2.0, 0.0])]
    changed = regulariser.change(Loss(torch.tensor(3.0)), torch.zeros(1))
    assert changed.total.item() == 3.0 + 0.5 * (1 + 2)  # |2 - 1| + |0 - 2|
