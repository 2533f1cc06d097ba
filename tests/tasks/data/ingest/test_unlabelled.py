"""Images without an annotation: refused, kept for training without labels, or skipped; never lost or negatives."""

import json

import pyarrow.parquet as pq
import pytest
from PIL import Image

from models.errors import UserError
from tasks.data.dataset import load_dataset
from tasks.data.ingest.audit import audit
from tasks.data.ingest.audit_report import summary_line
from tasks.data.ingest.ingest import IngestSettings, ingest
from tests.support.voc_trees import add, encoded, make_image, put, sound_tree, voc_xml


def made(source, root, out, **settings):
    """Ingest ``root``; return the summary, the data set, source -> row of the samples, path -> row of the manifest."""
    chosen = {"source": source, "path": root, "image_size": 32, "unlabelled": "keep"} | settings
    summary = ingest(IngestSettings.model_validate(chosen), out, seed=0)
    samples = pq.read_table(out / "samples.parquet").to_pylist()
    rows = {row["path"]: row for row in pq.read_table(out / "manifest.parquet").to_pylist()}
    return summary, load_dataset(out), {row["source"]: row for row in samples}, rows


def bare(root, *names, first=500):
    for number, name in enumerate(names, first):
        put(root / name, encoded(make_image(number)))


def test_kept_images_are_unlabelled_training_images(tmp_path):
    root = sound_tree(tmp_path / "src")
    add(root, "nothing", [], 90)
    bare(root, *(f"JPEGImages/new{i}.png" for i in range(9)))
    summary, data, samples, rows = made("voc", root, tmp_path / "out")
    assert (summary["images"], summary["negatives"], summary["unlabelled"]) == (40, 1, 9)
    assert summary["unlabelled_sites"] == {"all": 9} and summary["unusable"] == {}
    mine = [row for source, row in samples.items() if "new" in source]
    assert all(row["labels"] is None and row["split"] == "train" for row in mine) and len(mine) == 9
    assert samples["JPEGImages/nothing.png"]["labels"] == []
    assert rows["JPEGImages/new3.png"]["reason"] == "unlabelled" and rows["JPEGImages/new3.png"]["status"] == "ok"
    assert (~data.annotated).sum() == 9 and not data.targets[~data.annotated].any()
    assert (data.splits[~data.annotated] == "train").all()


def test_the_annotated_images_are_split_as_without_the_others(tmp_path):
    root = sound_tree(tmp_path / "src")
    plain = made("voc", root, tmp_path / "plain", unlabelled="refuse")
    same = made("voc", root, tmp_path / "same")
    assert plain[0]["digest"] == same[0]["digest"] and plain[0]["labels_digest"] == same[0]["labels_digest"]
    bare(root, "JPEGImages/000a.png", "JPEGImages/zzz.png")
    more = made("voc", root, tmp_path / "more")
    assert more[0]["digest"] != plain[0]["digest"]
    assert {name: row["split"] for name, row in plain[2].items()} == {
        name: row["split"] for name, row in more[2].items() if row["labels"] is not None
    }


@pytest.mark.parametrize("choice", ["refuse", "skip"])
def test_refused_or_skipped_images_are_counted(tmp_path, choice):
    root = sound_tree(tmp_path / "src")
    bare(root, "JPEGImages/new.png", "JPEGImages/newer.png")
    if choice == "refuse":
        with pytest.raises(UserError, match="2 of 32 inputs cannot be used") as caught:
            made("voc", root, tmp_path / "out", unlabelled=choice)
        assert "ingest.unlabelled=keep" in str(caught.value)
        return
    summary, data, samples, rows = made("voc", root, tmp_path / "out", unlabelled=choice)
    assert len(samples) == 30 and data.annotated.all() and summary["unlabelled"] == 0
    assert summary["reasons"]["unlabelled_skipped"] == 2
    assert rows["JPEGImages/new.png"]["status"] == "ignored"


def test_a_copy_of_an_annotated_image_is_a_duplicate_wherever_it_comes(tmp_path):
    root = sound_tree(tmp_path / "src", images=12)
    for name in ("JPEGImages/000_again.png", "JPEGImages/zzz.png"):
        put(root / name, (root / "JPEGImages/005.png").read_bytes())
    bare(root, "JPEGImages/a.png", "JPEGImages/b.png", first=70)
    put(root / "JPEGImages/b.png", (root / "JPEGImages/a.png").read_bytes())
    summary, _, samples, rows = made("voc", root, tmp_path / "out")
    assert summary["unlabelled"] == 1 and len(samples) == 13
    assert {name: rows[name]["reason"] for name in rows if rows[name]["reason"] == "duplicate"}.keys() == {
        "JPEGImages/000_again.png",
        "JPEGImages/zzz.png",
        "JPEGImages/b.png",
    }
    assert rows["JPEGImages/005.png"]["reason"] == ""


def test_an_unlabelled_image_in_a_group_with_a_test_image_is_left_out(tmp_path):
    root = sound_tree(tmp_path / "src", images=20)
    for i in range(20):  # the same pixels in another file, without an annotation
        put(root / f"JPEGImages/{i:03d}b.bmp", encoded(make_image(i), "BMP"))
    summary, _, samples, rows = made("voc", root, tmp_path / "out")
    for i in range(20):
        split = samples[f"JPEGImages/{i:03d}.png"]["split"]
        other = rows[f"JPEGImages/{i:03d}b.bmp"]
        assert (other["reason"] == "unlabelled") == (split == "train")
        assert (other["reason"] == "unlabelled_skipped") == (split != "train")
        if split != "train":
            assert f"an image of its group is in {split}" in other["detail"]
    assert summary["reasons"]["unlabelled_skipped"] == summary["splits"]["val"] + summary["splits"]["test"]
    assert summary["groups_across_splits"] == 0


def test_masks_of_photographs_do_not_become_unlabelled_images(tmp_path):
    root = sound_tree(tmp_path / "src", images=12)
    for i in range(6):
        put(root / f"SegmentationClass/{i:03d}.png", encoded(Image.new("RGB", (40, 30), (255, 0, 0))))
    bare(root, "JPEGImages/new.png")
    summary, _, _, rows = made("voc", root, tmp_path / "out")
    assert summary["unlabelled"] == 1 and rows["SegmentationClass/001.png"]["reason"] == "mask"


def test_splits_that_the_source_gives_hold_for_unlabelled_images_too(tmp_path):
    root = tmp_path / "src"
    for i in range(12):
        bare(root, f"{'train' if i < 8 else 'test'}/{'cat' if i % 2 else 'dog'}/{i}.png", first=i)
    bare(root, "train/unlabelled/a.png", "test/unlabelled/b.png", "Unlabeled/c.png", first=50)
    summary, data, samples, rows = made("folder", root, tmp_path / "out", split={"scheme": "given", "val": 0.0})
    assert data.classes == ["cat", "dog"] and summary["kind"] == "single_label"
    assert {name for name, row in samples.items() if row["labels"] is None} == {
        "train/unlabelled/a.png",
        "Unlabeled/c.png",
    }
    assert rows["test/unlabelled/b.png"]["reason"] == "unlabelled_skipped"
    assert "the source counts it as test" in rows["test/unlabelled/b.png"]["detail"]
    folders = made("folder", root, tmp_path / "classes", unlabelled="refuse")[1].classes
    assert folders == ["Unlabeled", "cat", "dog", "unlabelled"]  # as ever: each folder is a class


def test_images_beside_class_folders_are_unlabelled(tmp_path):
    root = tmp_path / "src"
    bare(root, *(f"{'cat' if i % 2 else 'dog'}/{i}.png" for i in range(12)), "loose.png")
    summary, data, samples, _ = made("folder", root, tmp_path / "out")
    assert samples["loose.png"]["labels"] is None and summary["unlabelled"] == 1 and summary["images"] == 13
    assert (data.targets[data.annotated].sum(axis=1) == 1).all()


def coco(root, annotated, others, **more):
    images = [{"id": i, "file_name": f"{i}.png"} for i in range(annotated + others)]
    boxes = [{"id": i, "image_id": i, "category_id": i % 2 + 1, "bbox": [1, 1, 5, 5]} for i in range(annotated)]
    names = [{"id": 1, "name": "crack"}, {"id": 2, "name": "oil"}]
    put(root / "all.json", json.dumps({"images": images, "annotations": boxes, "categories": names}).encode())
    bare(root, *(f"{i}.png" for i in range(annotated + others)), first=0)


def test_coco_images_without_annotations_are_negatives_or_unlabelled(tmp_path):
    coco(tmp_path / "src", 16, 4)
    bare(tmp_path / "src", "unlisted.png")
    summary, *_ = made("coco", tmp_path / "src", tmp_path / "negatives")
    assert (summary["negatives"], summary["unlabelled"]) == (4, 1)
    summary, *_ = made("coco", tmp_path / "src", tmp_path / "unlabelled", coco={"unannotated": "unlabelled"})
    assert (summary["negatives"], summary["unlabelled"]) == (0, 5)


def test_empty_cells_of_a_table_and_missing_yolo_files_are_unlabelled(tmp_path):
    root = tmp_path / "table"
    bare(root, *(f"{i}.png" for i in range(14)), first=0)
    lines = [f"{i}.png,{('crack', 'oil')[i % 2] if i < 12 else ''}" for i in range(13)]  # 12: empty; 13: in no row
    put(root / "labels.csv", "\n".join(["path,labels", *lines]).encode())
    summary, _, samples, _ = made("table", root, tmp_path / "out")
    assert {name for name, row in samples.items() if row["labels"] is None} == {"12.png", "13.png"}
    root = tmp_path / "yolo"
    for i in range(12):
        put(root / f"labels/{i}.txt", f"{i % 2} 0.5 0.5 0.2 0.2\n".encode() if i else b"")
    bare(root, *(f"images/{i}.png" for i in range(15)), first=0)
    put(root / "data.yaml", b"names: [crack, oil]\n")
    summary, _, samples, _ = made("yolo", root, tmp_path / "yolo-out")
    assert (summary["negatives"], summary["unlabelled"], summary["images"]) == (1, 3, 15)


def test_a_site_may_have_no_annotation_at_all(tmp_path):
    root = tmp_path / "src"
    for i in range(20):
        add(root, f"{i:03d}", ["crack" if i % 2 else "oil"], i, folder="plant a")
    bare(root, *(f"plant b/JPEGImages/{i}.png" for i in range(18)))
    settings = {"site": {"rule": "folder", "level": 1}}
    summary, data, *_ = made("voc", root, tmp_path / "out", **settings)
    assert summary["sites"] == {"plant a": 20, "plant b": 18} and summary["unlabelled_sites"] == {"plant b": 18}
    assert (data.sites[~data.annotated] == "plant b").all()
    chosen = {"source": "voc", "path": root, "image_size": 32, "unlabelled": "keep", **settings}
    found = audit(IngestSettings.model_validate(chosen), 0).findings
    assert found["usable"] and (found["unlabelled"], found["unlabelled_kept"], found["bad"]) == (18, 18, 0)
    assert found["unlabelled_sites"] == {"plant b": 18}
    assert "18 unlabelled" in summary_line(found)


def test_unlabelled_images_alone_are_no_data_set(tmp_path):
    bare(tmp_path / "src", "1.png", "2.png")
    for choice, text in (("keep", "no image has a label"), ("skip", "no images found"), ("refuse", "have no labels")):
        with pytest.raises(UserError, match=text):
            made("images", tmp_path / "src", tmp_path / "out", unlabelled=choice)


def test_a_damaged_image_without_an_annotation_stays_unusable(tmp_path):
    root = sound_tree(tmp_path / "src", images=12)
    put(root / "JPEGImages/broken.png", b"\x89PNG\r\n\x1a\n" + bytes(40))
    put(root / "JPEGImages/bad.png", encoded(make_image(77)))
    put(root / "Annotations/bad.xml", voc_xml(["crack"])[:-30])
    summary, _, _, rows = made("voc", root, tmp_path / "out", max_bad_share=0.5)
    assert summary["unlabelled"] == 0
    assert rows["JPEGImages/broken.png"]["status"] == "quarantined"
    assert rows["JPEGImages/bad.png"]["reason"] == "bad_annotation"  # annotated, but it cannot be read


def test_an_image_that_may_have_an_annotation_after_all_is_not_unlabelled(tmp_path):
    root = sound_tree(tmp_path / "src", images=12)
    bare(root, "JPEGImages/x.png", "JPEGImages/X.png")
    put(root / "Annotations/X.XML", voc_xml(["crack"]))
    put(root / "Annotations/x%20.xml", voc_xml(["oil"]))
    _, _, _, rows = made("voc", root, tmp_path / "out", max_bad_share=0.5)
    unsure = [row for row in rows.values() if row["reason"] == "no_annotation"]
    assert all("nearly the same names" in row["detail"] for row in unsure)
    folders = tmp_path / "folders"
    bare(folders, *(f"{name}/{i}.png" for i, name in enumerate(("car", "bus", "car", "bus", "train", "train"))))
    with pytest.raises(UserError, match="it is unclear whether"):
        made("folder", folders, tmp_path / "folders-out", max_bad_share=1.0)
