"""Too few images for the clients are refused before decoding; the preset for photographs fits small sets."""

import pytest

from flows.run.prepare_data import prepare_data
from flows.settings.files import load_settings
from models.errors import UserError
from tests.support.image_trees import tree
from tests.support.voc_trees import make_image

XML = "<annotation><object><name>{}</name></object></annotation>"


def voc(root, images):
    """A VOC tree: one image in three shows a switch, the others a lamp."""
    files = {f"JPEGImages/{n}.png": make_image(n) for n in range(images)}
    files |= {f"Annotations/{n}.xml": XML.format("lamp" if n % 3 else "switch").encode() for n in range(images)}
    return tree(root, files)


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def test_too_few_images_are_refused_before_any_is_decoded(tmp_path, monkeypatch):
    root = voc(tmp_path / "in", 30)
    overrides = [f"ingest.path={root}", "partition.min_size=16"]
    settings = load_settings(None, ("photos",), overrides)
    monkeypatch.setattr("tasks.data.ingest.ingest.collect", lambda *_, **__: pytest.fail("decoding has begun"))
    with pytest.raises(UserError, match="too few images for this number of clients") as caught:
        prepare_data(settings)
    assert "80 training images: 5 clients" in str(caught.value) and "30 images listed" in str(caught.value)
    assert "--set partition.min_size=4" in str(caught.value)
    assert not list(tmp_path.glob("runs/data/*/dataset"))


def test_the_preset_for_photographs_and_the_hint_accept_small_sets(tmp_path):
    """109 photographs, 76 of them for training, were too few for five clients of 16."""
    root = voc(tmp_path / "in", 109)
    data = prepare_data(load_settings(None, ("photos",), [f"ingest.path={root}", "ingest.image_size=32"]))
    assert (data.clients / "clients.json").exists()
    few = voc(tmp_path / "few", 30)
    hinted = [f"ingest.path={few}", "ingest.image_size=32", "partition.min_size=4"]
    assert prepare_data(load_settings(None, ("photos",), hinted)).dataset.exists()
