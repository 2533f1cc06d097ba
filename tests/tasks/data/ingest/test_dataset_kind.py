"""The kind of problem of a data set: by its format, by a setting, in its record, and refused where it does not fit."""

import json

import pytest

from models.errors import UserError
from tasks.data.dataset import load_dataset
from tasks.data.ingest.dataset_kind import dataset_kind
from tasks.data.ingest.ingest import IngestSettings, ingest
from tests.support.image_trees import tree
from tests.support.voc_trees import make_image

SETTINGS = {"image_size": 32}


@pytest.fixture
def class_folders(tmp_path):
    return tree(tmp_path / "src", {f"{'ab'[i % 2]}/{i}.png": make_image(i) for i in range(12)})


@pytest.fixture
def table(tmp_path):
    """Eight images in a table: one has two labels, one has none."""
    columns = ["1,0", "1,1", "0,1", "0,0", *["1,0", "0,1"] * 2]
    text = "".join(f"{i}.png,{cells}\n" for i, cells in enumerate(columns))
    images = {f"{i}.png": make_image(i) for i in range(8)}
    return tree(tmp_path / "src", {"labels.csv": f"image,a,b\n{text}".encode()} | images)


@pytest.mark.parametrize(
    ("source", "kind"),
    [("folder", "single_label"), ("idx", "single_label"), ("cifar10", "single_label"), ("voc", "multi_label"),
     ("coco", "multi_label"), ("table", "multi_label"), ("synthetic", "multi_label")],
)  # fmt: skip
def test_the_format_decides_by_itself_and_the_setting_overrides(source, kind):
    assert IngestSettings(source=source).problem_kind == kind
    for given in ("multi_label", "single_label"):
        assert IngestSettings(source=source, kind=given).problem_kind == given


@pytest.mark.parametrize(
    ("name", "kind"),
    [("cabinet", "multi_label"), ("defects", "multi_label"), ("scrap", "single_label"), ("scenes", "single_label")],
)
def test_a_synthetic_set_has_the_kind_of_its_labels(name, kind):
    from tasks.data.formats.synthetic.registry import synthetic_set

    settings = IngestSettings(source="synthetic", synthetic={"set": name})
    labels = synthetic_set(name).sample_labels(settings.synthetic, 1, "site-1", 60)
    assert bool((labels.sum(axis=1) == 1).all()) == (kind == "single_label")
    assert settings.problem_kind == kind


def test_class_folders_become_a_single_label_data_set(class_folders, tmp_path):
    settings = IngestSettings(source="folder", path=class_folders, **SETTINGS)
    summary = ingest(settings, tmp_path / "one", seed=1)
    assert summary["kind"] == dataset_kind(tmp_path / "one") == "single_label"
    assert (load_dataset(tmp_path / "one").targets.sum(axis=1) == 1).all()
    other = ingest(settings.model_copy(update={"kind": "multi_label"}), tmp_path / "two", seed=1)
    assert other["kind"] == dataset_kind(tmp_path / "two") == "multi_label"
    assert other["digest"] == summary["digest"], "the kind is no part of the data set's digest"


def test_a_multi_label_set_as_single_label_is_refused_with_the_offending_images(table, tmp_path):
    settings = IngestSettings(source="table", path=table, kind="single_label", max_bad_share=1.0, **SETTINGS)
    with pytest.raises(UserError) as caught:
        ingest(settings, tmp_path / "out", seed=1)
    text = str(caught.value)
    assert "2 of 8 images do not have exactly one label" in text
    assert "1 without a label, 1 with several" in text
    assert "3.png: no label" in text and "1.png: a, b" in text
    assert not (tmp_path / "out").exists()


def test_a_data_set_of_an_earlier_release_has_the_kind_of_its_format(class_folders, tmp_path):
    ingest(IngestSettings(source="folder", path=class_folders, **SETTINGS), tmp_path / "out", seed=1)
    file = tmp_path / "out/dataset.json"
    summary = json.loads(file.read_text())
    del summary["kind"]
    for changes, kind in (
        ({}, "single_label"),
        ({"source": "voc"}, "multi_label"),
        ({"source": "no longer known"}, "multi_label"),
        ({"source": "synthetic", "settings": {"synthetic": {"set": "scrap", "no_longer_known": 1}}}, "single_label"),
        ({"source": "synthetic", "settings": {"synthetic": {"set": "defects"}}}, "multi_label"),
    ):
        file.write_text(json.dumps(summary | changes))
        assert dataset_kind(tmp_path / "out") == kind, changes
    file.write_text(json.dumps(summary | {"kind": "regression"}))
    with pytest.raises(UserError, match="unknown kind of problem"):
        dataset_kind(tmp_path / "out")
