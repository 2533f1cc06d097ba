"""Data sets that an earlier release made, with fewer settings than this one has."""

import json
import shutil
from pathlib import Path

import pytest

from flows.run.prepare_data import require_data
from flows.settings.schema import Settings
from models.errors import UserError


def settings(**ingest):
    return Settings.model_validate(
        {
            "seed": 1,
            "ingest": {"image_size": 32, "synthetic": {"images": 64, "sites": 3}} | ingest,
            "partition": {"scheme": "iid", "clients": 4, "min_size": 4},
        }
    )


def test_a_setting_that_the_release_did_not_have_counts_as_its_default(tiny_data, tmp_path, monkeypatch):
    """``ingest.resize`` came later; data sets from before were squashed, which is its default."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_data.dataset, "data/dataset")
    shutil.copytree(tiny_data.clients, "data/clients")
    file = Path("data/dataset/dataset.json")
    summary = json.loads(file.read_text())
    del summary["settings"]["resize"]
    file.write_text(json.dumps(summary))
    assert require_data(settings()).dataset == Path("data/dataset")
    with pytest.raises(UserError, match="not made with these settings"):
        require_data(settings(resize="crop"))
    summary["settings"]["unknown"] = 1  # a later release's
    file.write_text(json.dumps(summary))
    with pytest.raises(UserError, match="not made with these settings"):
        require_data(settings())
