"""What an exported network says about itself."""

import dataclasses
import json
import shutil

import pytest

from flows.run.results import model_factory
from tasks.data.images.resizing import RESIZED
from tests.support.rounds import NARROW


@pytest.mark.parametrize("how", [None, *RESIZED])
def test_metadata_say_how_the_images_were_resized(make_run, tiny_data, tmp_path, how):
    folder = shutil.copytree(tiny_data.dataset, tmp_path / "dataset")
    summary = json.loads((folder / "dataset.json").read_text())
    del summary["settings"]["resize"]  # as an earlier release left it
    summary["settings"] |= {"resize": how} if how else {}
    (folder / "dataset.json").write_text(json.dumps(summary))
    context, start = make_run(objective="bce", network=NARROW)
    _, example, metadata = model_factory(dataclasses.replace(context, dataset=str(folder)), start)()
    assert metadata["input"].endswith(RESIZED[how or "squash"])
    assert "[N, 3, 32, 32]" in metadata["input"] and example.shape == (2, 3, 32, 32)
