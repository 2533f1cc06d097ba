"""A refused label is reported with its file and line."""

import json

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.run.inputs import DataPaths
from flows.run.open import derive_run_id
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.data.dataset import load_dataset
from tasks.data.ingest.ingest import IngestSettings, ingest
from tasks.data.ingest.label_files import read_aliases, read_classes
from tasks.data.partition import PartitionSettings, partition
from tests.support.audit_cases import table
from tests.support.voc_trees import add, encoded, make_image, put

BAD = "--"


def images(root, *names):
    for number, name in enumerate(names):
        put(root / name, encoded(make_image(number)))


def as_table(root, label):
    images(root, "a.png", "b.png", "c.png", "d.png")
    rows = ("image", "label"), ("a.png", "rust"), ("b.png", f"rust;{label}"), ("c.png", "crack"), ("d.png", "rust")
    put(root / "labels.csv", table(*rows))
    return "table", f"{root / 'labels.csv'}, line 3"


def as_parquet(root, label):
    import pyarrow as pa
    import pyarrow.parquet as pq

    images(root, "a.png", "b.png", "c.png", "d.png")
    labels = ["x"], ["y"], ["x", label], ["y"]
    rows = [{"image": f"{name}.png", "labels": own} for name, own in zip("abcd", labels, strict=True)]
    pq.write_table(pa.Table.from_pylist(rows), root / "labels.parquet")
    return "table", f"{root / 'labels.parquet'}, row 3"


def as_voc(root, label):
    for number, (name, own) in enumerate((("a", ["rust"]), ("b", ["rust", label]), ("c", ["crack"]), ("d", ["rust"]))):
        add(root, name, own, number)
    return "voc", f"{root / 'Annotations/b.xml'}, line 1"


def as_yolo(root, label):
    images(root, "images/a.png", "images/b.png", "images/c.png", "images/d.png")
    put(root / "data.yaml", f'names:\n  0: rust\n  1: "{label}"\n'.encode())
    for name, index in zip("abcd", "0101", strict=True):
        put(root / f"labels/{name}.txt", f"{index} 0.5 0.5 0.2 0.2\n".encode())
    return "yolo", f"{root / 'data.yaml'}, line 3"


def as_coco(root, label):
    images(root, "1.png", "2.png", "3.png", "4.png")
    listed = [{"id": number, "file_name": f"{number}.png"} for number in (1, 2, 3, 4)]
    notes = [{"id": n, "image_id": n, "category_id": n % 2} for n in (1, 2, 3, 4)]
    content = {
        "images": listed,
        "annotations": notes,
        "categories": [{"id": 0, "name": "rust"}, {"id": 1, "name": label}],
    }
    text = json.dumps(content, indent=1)
    put(root / "set.json", text.encode())
    line = next(n for n, found in enumerate(text.split("\n"), 1) if json.dumps(label) in found)
    return "coco", f"{root / 'set.json'}, line {line}"


def as_folders(root, label):
    images(root, "rust/a.png", f"{label}/b.png", "rust/c.png", f"{label}/d.png")
    return "folder", f"folder {root / label}"


FORMATS = [as_table, as_parquet, as_voc, as_yolo, as_coco, as_folders]


@pytest.mark.parametrize("label", [BAD, "_"])
@pytest.mark.parametrize("make", FORMATS)
def test_a_label_without_words_is_named_with_its_file_and_line(tmp_path, make, label):
    source, place = make(tmp_path / "src", label)
    sets = [f"ingest.source={source}", f"ingest.path={tmp_path / 'src'}", "ingest.image_size=32"]
    split = {"val": 0, "test": 0.25}
    settings = load_settings(None, ["tiny"], sets)
    values = settings.ingest.model_dump() | {"split": split}
    ingest(IngestSettings.model_validate(values), tmp_path / "dataset", seed=1, workers=1)
    partition(
        tmp_path / "dataset", PartitionSettings(scheme="iid", clients=2, min_size=1), tmp_path / "clients", seed=1
    )
    with pytest.raises(UserError, match="no words") as caught:
        derive_run_id(settings, DataPaths(tmp_path / "dataset", tmp_path / "clients"))
    assert caught.value.where == f"label {label!r}: {place}"


def test_two_labels_with_the_same_words_are_named_with_their_files(tmp_path):
    from tasks.data.ingest.label_origin import label_locations

    root = tmp_path / "src"
    add(root, "a", ["oil leak"], 0)
    add(root, "b", ["oil_leak"], 1)
    settings = IngestSettings(source="voc", path=root, image_size=32, label_aliases={})
    ingest(settings, tmp_path / "dataset", seed=1, workers=1)
    found = label_locations(tmp_path / "dataset", ["oil leak", "oil_leak"])
    assert found == [f"{root / 'Annotations/a.xml'}, line 1", f"{root / 'Annotations/b.xml'}, line 1"]
    (root / "Annotations/a.xml").unlink()  # what has gone since leaves the image
    assert label_locations(tmp_path / "dataset", ["oil leak"]) == [f"the annotation of {root / 'JPEGImages/a.png'}"]
    assert load_dataset(tmp_path / "dataset").classes == ["oil leak", "oil_leak"]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("c.txt", "rust\ncrack\n\nrust\n", "line 4"),
        ("c.yaml", "names: [rust, crack, rust]\n", "label 3"),
        ("c.json", '["rust", 3]', "label 2"),
    ],
)
def test_a_label_in_a_file_of_labels_is_refused_with_file_and_place(tmp_path, name, text, place):
    put(tmp_path / name, text.encode())
    with pytest.raises(UserError) as caught:
        read_classes(tmp_path / name, "--classes")
    assert caught.value.where == f"--classes: {tmp_path / name}, {place}"


def test_a_row_of_aliases_is_refused_with_its_line(tmp_path):
    put(tmp_path / "a.csv", b"rsut,rust\n\ncrakc\n")
    with pytest.raises(UserError) as caught:
        read_aliases(tmp_path / "a.csv", "--aliases")
    assert caught.value.where == f"--aliases: {tmp_path / 'a.csv'}, line 3"


def test_aliases_without_a_declared_label_name_their_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    as_table(tmp_path / "src", "oil")
    put(tmp_path / "a.csv", b"rsut,ruts\n")
    put(tmp_path / "c.txt", b"rust\ncrack\noil\n")
    options = ["--aliases", str(tmp_path / "a.csv"), "--classes", str(tmp_path / "c.txt")]
    done = CliRunner().invoke(app, ["data", "check", str(tmp_path / "src"), *options])
    assert done.exit_code == 2
    assert f"ingest.label_aliases is read from {tmp_path / 'a.csv'}" in done.output
