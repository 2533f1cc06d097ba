"""Several names files for YOLO: each applies to its own folder, contradictions are refused."""

import pytest

from models.errors import UserError
from tests.support.format_rows import classes_of, rows_of
from tests.support.voc_trees import encoded, make_image, put

BOX = b" .5 .5 .2 .2\n"


def labelled(root, names, files):
    """``names``: file -> its content; ``files``: label file without suffix -> class index, its image beside it."""
    for name, text in names.items():
        put(root / name, text)
    for number, (name, index) in enumerate(files.items()):
        image = name.replace("labels/", "images/")
        put(root / f"{image}.png", encoded(make_image(number)))
        put(root / f"{name}.txt", str(index).encode() + BOX)


def found(root, **options):
    return {path: row.labels for path, row in rows_of("yolo", root, **options).items() if path.endswith(".png")}


def test_labelimg_folders_with_different_class_orders_are_joined_by_name(tmp_path):
    names = {"anna/classes.txt": b"crack\noil\n", "bert/classes.txt": b"oil\ncrack\n"}
    labelled(tmp_path, names, {"anna/1": 0, "bert/2": 0, "bert/deep/3": 1})
    assert found(tmp_path) == {"anna/1.png": ["crack"], "bert/2.png": ["oil"], "bert/deep/3.png": ["crack"]}
    assert classes_of("yolo", tmp_path) == ["crack", "oil"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"a/data.yaml": b"names: [crack, oil]\nnc: 2"}, {"b/data.yaml": b"names: {1: crack, 0: oil}"}),
        ({"a/obj.names": b"crack\noil"}, {"b/labels/classes.txt": b"oil\ncrack"}),
        ({"a/labels/train/classes.txt": b"crack\noil"}, {"b/_darknet.labels": b"oil\ncrack"}),
    ],
)
def test_other_kinds_of_names_files(tmp_path, a, b):
    files = {"a/labels/train/1": 0, "b/labels/2": 0}
    labelled(tmp_path, a | b, files)
    assert found(tmp_path) == {"a/images/train/1.png": ["crack"], "b/images/2.png": ["oil"]}


@pytest.mark.parametrize(
    "names",
    [
        {"data.yaml": b"names: [crack, oil]", "labels/classes.txt": b"oil\ncrack"},
        {"classes.txt": b"crack\noil", "obj.names": b"oil\ncrack"},
        {"images/classes.txt": b"crack\noil", "labels/classes.txt": b"oil\ncrack"},
        {"labels/classes.txt": b"crack\noil", "data.yaml": b"names: [oil, crack]", "labels/x/classes.txt": b"oil"},
    ],
)
def test_contradicting_names_files_for_one_folder_are_refused(tmp_path, names):
    labelled(tmp_path, names, {"labels/1": 0})
    with pytest.raises(UserError, match=r"index 0 is \w+ or \w+") as caught:
        found(tmp_path)
    assert "ingest.yolo.names" in str(caught.value)
    put(tmp_path / "mine.txt", b"rust")
    assert found(tmp_path, names=tmp_path / "mine.txt") == {"images/1.png": ["rust"]}


def test_label_files_without_an_applicable_names_file_are_refused(tmp_path):
    names = {"anna/classes.txt": b"crack\noil\n", "bert/classes.txt": b"oil\ncrack\n"}
    labelled(tmp_path, names, {"anna/1": 0, "carl/2": 0})
    with pytest.raises(UserError, match=r"(?s)carl/2\.txt.*anna/classes\.txt, bert/classes\.txt"):
        found(tmp_path)


def test_names_files_with_different_names_are_refused(tmp_path):
    names = {"anna/classes.txt": b"crack\noil\n", "bert/classes.txt": b"oil\ncrack\nrust\n"}
    labelled(tmp_path, names, {"anna/1": 0, "bert/2": 2})
    with pytest.raises(UserError, match=r"(?s)anna.*without rust.*ingest\.classes"):
        classes_of("yolo", tmp_path)
    assert found_with_classes(tmp_path) == {"anna/1.png": ["crack"], "bert/2.png": ["rust"]}


def found_with_classes(root):
    from tasks.data.decoding.parallel import Decoding
    from tasks.data.ingest.reading import collect, open_source
    from tests.support.format_rows import settings_of

    settings = settings_of("yolo", root).model_copy(update={"classes": ["crack", "oil", "rust"]})
    rows = collect(open_source(settings), settings, 0, Decoding(32, settings.limits)).rows
    return {row["path"]: row["labels"] for row in rows if row["path"].endswith(".png")}


def test_names_files_of_different_lengths_that_agree_are_merged(tmp_path):
    labelled(
        tmp_path, {"data.yaml": b"names: [crack, oil]", "labels/classes.txt": b"crack\noil\nrust"}, {"labels/1": 2}
    )
    assert found(tmp_path) == {"images/1.png": ["rust"]}
    assert classes_of("yolo", tmp_path) == ["crack", "oil", "rust"]


def test_only_line_breaks_end_a_name(tmp_path):
    labelled(tmp_path, {"classes.txt": "crack\u2028wide\r\noil\x0b\nrust".encode()}, {"1": 1, "2": 2})
    assert found(tmp_path) == {"1.png": ["oil"], "2.png": ["rust"]}


def test_labelimgs_predefined_classes_are_reported_but_not_used(tmp_path):
    labelled(tmp_path, {"predefined_classes.txt": b"dog\nperson"}, {"1": 0})
    with pytest.raises(UserError, match=r"(?s)predefined_classes\.txt, which may hold the names.*ingest\.yolo\.names"):
        found(tmp_path)
