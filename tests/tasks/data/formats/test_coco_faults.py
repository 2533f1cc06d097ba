"""COCO faults: dangling and invalid annotations, unused root categories, overlapping files."""

import json

import pytest

from models.errors import UserError
from tasks.data.ingest.ingest import ingest
from tests.support.coco_files import CATEGORIES, coco, dump, write_images
from tests.support.format_rows import classes_of, rows_of, settings_of


def labels_of(root, annotations, ids=(51, 7), **options):
    """The labels of a.png and b.png; annotations that belong to no image leave rows of their own."""
    write_images(root, "a.png", "b.png")
    content = coco({}, annotations)
    content["images"] = [{"id": key, "file_name": f"{name}.png"} for key, name in zip(ids, "ab", strict=True)]
    (root / "x.json").write_text(json.dumps(content))
    return found(root, **options)


def found(root, **options):
    from tasks.data.decoding.parallel import Decoding
    from tasks.data.ingest.reading import collect, open_source

    settings = settings_of("coco", root, **options)
    collector = collect(open_source(settings), settings, 0, Decoding(32, settings.limits))
    collector.select_images()
    return {row["path"]: (row["reason"], row["labels"], row["detail"]) for row in collector.rows}


@pytest.mark.parametrize("written", [51, 51.0, 5.1e1, "51", " 51 ", "51.0", "5.1e1", "051"])
@pytest.mark.parametrize("key", [51, 51.0, "51"])
def test_equal_numbers_are_one_id(tmp_path, key, written):
    rows = labels_of(tmp_path, [{"image_id": written, "category_id": 3.0}, (7, "17")], (key, 7))
    assert rows["a.png"][:2] == ("", ["crack"])
    assert rows["b.png"][:2] == ("", ["oil"])


def test_ids_written_as_text_stay_different():
    from tasks.data.formats.coco.ids import Ids

    ids = Ids(["7", "007", "a", "9007199254740993"])
    assert [ids.find(one) for one in (7, "007", "07", "7.0", "A", 9007199254740993.0, True, None, [7], "")] == [
        "7", "007", None, None, None, None, None, None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "annotation",
    [
        {"imageId": 51, "category_id": 3},
        {"image": "a.png", "category_id": 3},
        {"image_id": None, "category_id": 3},
        {"image_id": 52, "category_id": 3},
        {"image_id": 51.5, "category_id": 3},
        {"image_id": True, "category_id": 3},
        {"image_id": [51], "category_id": 3},
        "annotation 5",
    ],
)
def test_dangling_annotations_make_unannotated_images_doubtful(tmp_path, annotation):
    rows = labels_of(tmp_path, [(7, 17), annotation])
    assert rows["a.png"][:2] == ("doubtful", None)
    assert "ingest.coco.dangling" in rows["a.png"][2]
    assert rows["b.png"][:2] == ("", ["oil"])  # an image with annotations of its own is not in doubt
    assert [reason for path, (reason, _, _) in rows.items() if path.startswith("x.json#")] == ["dangling"]
    rows = labels_of(tmp_path, [(7, 17), annotation], dangling="pass_over")
    assert rows["a.png"][:2] == ("", [])
    assert "dangling" not in {reason for reason, _, _ in rows.values()}


def test_dangling_annotations_count_towards_max_bad_share(tmp_path):
    labels_of(tmp_path / "in", [(7, 17), {"imageId": 51, "category_id": 3}])
    with pytest.raises(UserError, match=r"(?s)2 of 3 inputs.*imageId 51.*ingest\.coco\.dangling"):
        ingest(settings_of("coco", tmp_path / "in"), tmp_path / "out", seed=0)


def test_many_dangling_annotations_are_summarised_in_few_rows(tmp_path):
    rows = labels_of(tmp_path, [{"category_id": 3}] * 500)
    lost = [detail for reason, _, detail in rows.values() if reason == "dangling"]
    assert len(lost) == 2
    assert "498 more" in lost[-1]


def test_a_json_without_annotations_makes_no_negatives(tmp_path):
    write_images(tmp_path, "a.png", "b.png")
    dump(tmp_path / "train.json", coco({1: "a.png"}, [(1, 3)]))
    dump(tmp_path / "test.json", coco({1: "b.png"}))
    row = rows_of("coco", tmp_path)["b.png"]
    assert row.reason == "no_annotation"
    assert "ingest.coco.empty" in row.detail
    assert rows_of("coco", tmp_path, empty="negative")["b.png"].labels == []
    dump(tmp_path / "all.json", coco({1: "a.png", 2: "b.png"}))  # names the images, and says nothing of them
    rows = rows_of("coco", tmp_path)
    assert (rows["a.png"].labels, rows["a.png"].split) == (["crack"], "train")


@pytest.mark.parametrize("key", ["filename", "path", "id"])
def test_an_image_entry_without_a_file_name_gets_a_row(tmp_path, key):
    write_images(tmp_path, "a.png")
    content = coco({1: "a.png"}, [(1, 3), (2, 3)])
    content["images"].append({"id": 2, key: "b.png"})
    (tmp_path / "x.json").write_text(json.dumps(content))
    rows = found(tmp_path)
    assert rows["x.json#images[1]"][0] == "no_image"
    assert key == "id" or key in rows["x.json#images[1]"][2]


def test_an_image_without_annotations_is_a_negative_if_none_dangle(tmp_path):
    assert labels_of(tmp_path, [(7, 17)])["a.png"][:2] == ("", [])


def test_deleted_crowd_and_ignored_annotations(tmp_path):
    erased = {"image_id": 51, "category_id": 3, "deleted": True}
    rows = labels_of(tmp_path, [erased, {"image_id": 7, "category_id": 3, "deleted": 0, "iscrowd": 1}])
    assert (rows["a.png"][:2], rows["b.png"][:2]) == (("", []), ("", ["crack"]))
    assert "1 annotation(s) marked deleted" in rows["x.json"][2]
    doubted = [{"image_id": 51, "category_id": 3, "ignore": 1}, (51, 17), (7, 3), {"image_id": 7, "category_id": 3} | {"ignore": 1}]  # fmt: skip  # noqa: E501
    rows = labels_of(tmp_path, doubted)
    assert rows["a.png"][0] == "bad_annotation"
    assert "ingest.coco.ignored" in rows["a.png"][2]
    assert rows["b.png"][:2] == ("", ["crack"])  # its labels do not hang on it
    assert labels_of(tmp_path, doubted, ignored="count")["a.png"][1] == ["crack", "oil"]
    assert labels_of(tmp_path, doubted, ignored="leave_out")["a.png"][1] == ["oil"]


ROBOFLOW = [
    {"id": 0, "name": "cells", "supercategory": "none"},
    {"id": 1, "name": "RBC", "supercategory": "cells"},
    {"id": 2, "name": "WBC", "supercategory": "cells"},
]


def test_an_unused_root_category_is_no_label(tmp_path):
    write_images(tmp_path, "a.png")
    dump(tmp_path / "x.json", coco({1: "a.png"}, [(1, 1)], ROBOFLOW))
    assert classes_of("coco", tmp_path) == ["RBC", "WBC"]
    detail = rows_of("coco", tmp_path)["x.json"].detail
    assert "cells, has no annotation and is the supercategory of the others" in detail
    assert "1 category or more without an annotation, still labels: WBC" in detail


@pytest.mark.parametrize(
    ("annotations", "categories"),
    [
        ([(1, 0), (1, 1)], ROBOFLOW),  # it is used
        ([(1, 1)], [ROBOFLOW[0] | {"id": 9}, *ROBOFLOW[1:]]),
        ([(1, 1)], [*ROBOFLOW[:2], ROBOFLOW[2] | {"supercategory": "blood"}]),
        ([(1, 1)], [ROBOFLOW[0] | {"supercategory": "tissue"}, *ROBOFLOW[1:]]),
    ],
)
def test_an_ordinary_category_without_annotations_stays_a_label(tmp_path, annotations, categories):
    write_images(tmp_path, "a.png")
    dump(tmp_path / "x.json", coco({1: "a.png"}, annotations, categories))
    assert sorted(classes_of("coco", tmp_path)) == ["RBC", "WBC", "cells"]


def test_a_root_category_used_in_another_file_is_a_label(tmp_path):
    write_images(tmp_path, "a.png", "b.png")
    dump(tmp_path / "train.json", coco({1: "a.png"}, [(1, 1)], ROBOFLOW))
    dump(tmp_path / "val.json", coco({1: "b.png"}, [(1, 0)], ROBOFLOW))
    assert sorted(classes_of("coco", tmp_path)) == ["RBC", "WBC", "cells"]
    dump(tmp_path / "val.json", coco({1: "b.png"}, [(1, 2)], ROBOFLOW[::-1]))
    assert sorted(classes_of("coco", tmp_path)) == ["RBC", "WBC"]


def test_the_order_of_categories_may_differ_between_files(tmp_path):
    write_images(tmp_path, "a.png", "b.png")
    dump(tmp_path / "train.json", coco({1: "a.png"}, [(1, 90)]))
    other = [one | {"id": key} for key, one in zip((1, 2, 90), CATEGORIES, strict=True)]
    dump(tmp_path / "val.json", coco({1: "b.png"}, [(1, 90)], other))
    assert classes_of("coco", tmp_path) == ["crack", "oil", "rust"]
    rows = rows_of("coco", tmp_path)
    assert (rows["a.png"].labels, rows["b.png"].labels) == (["rust"], ["oil"])


def test_a_json_of_all_images_next_to_one_per_split(tmp_path):
    write_images(tmp_path, "a.png", "b.png", "c.png")
    dump(tmp_path / "train.json", coco({1: "a.png"}, [(1, 3)]))
    dump(tmp_path / "val.json", coco({1: "b.png"}, [(1, 17)]))
    dump(tmp_path / "all.json", coco({1: "a.png", 2: "b.png"}, [(1, 3), (2, 17)]))
    rows = rows_of("coco", tmp_path)  # the same labels: the files that name a split say more
    assert {name: (rows[name].reason, rows[name].labels, rows[name].split) for name in ("a.png", "b.png")} == {
        "a.png": ("repeated", ["crack"], "train"),
        "b.png": ("repeated", ["oil"], "val"),
    }
    dump(tmp_path / "all.json", coco({1: "a.png", 2: "b.png"}, [(1, 90), (2, 17)]))
    row = rows_of("coco", tmp_path)["a.png"]
    assert row.reason == "ambiguous_pair"
    assert "all.json: rust; train.json: crack (train)" in row.detail
    assert "ingest.coco.annotations" in row.detail
    rows = rows_of("coco", tmp_path, annotations=["train.json", "val.json"])
    assert rows["a.png"].labels == ["crack"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": [{"id": 1, "file_name": "a.png", "neg_category_ids": [3]}]}, "LVIS"),
        ({"annotations": [{"image_id": 1, "segments_info": []}]}, "panoptic"),
    ],
)
def test_lvis_and_panoptic_json_are_refused(tmp_path, change, says):
    write_images(tmp_path, "a.png")
    dump(tmp_path / "x.json", coco({1: "a.png"}, [(1, 3)]) | change)
    with pytest.raises(UserError, match=says):
        rows_of("coco", tmp_path)


def test_lone_surrogates_become_character_references(tmp_path):
    write_images(tmp_path, "a.png")
    content = coco({1: "a.png", 2: "\ud83d.png"}, [(1, 1), (2, 1)], [{"id": 1, "name": "crack\ud800"}])
    (tmp_path / "x.json").write_text(json.dumps(content))
    rows = rows_of("coco", tmp_path, missing=["&#55357;.png"])
    assert rows["a.png"].labels == ["crack&#55296;"]
