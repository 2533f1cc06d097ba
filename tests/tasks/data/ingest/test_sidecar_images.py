"""Masks and copies next to photographs: found, refused, left out, or kept in one split."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from models.errors import UserError
from tasks.data.ingest.audit import audit
from tasks.data.ingest.ingest import ingest
from tasks.data.ingest.settings import IngestSettings
from tests.support.voc_trees import encoded, make_image, put, voc_xml


def mask(seed, size=(40, 30)):
    """Two values, a blob for each seed."""
    field = np.zeros(size[::-1], np.uint8)
    field[seed % 20 : seed % 20 + 8, seed % 30 : seed % 30 + 7] = 255
    return Image.fromarray(field)


def settings_of(root, **changes):
    values = {"source": "folder", "path": root, "image_size": 32, "max_bad_share": 0} | changes
    return IngestSettings.model_validate(values)


def refusal(root, out, **changes):
    with pytest.raises(UserError) as caught:
        ingest(settings_of(root, **changes), out, seed=0)
    return str(caught.value)


def tree(root, photograph, other, make=mask, count=6, kind="JPEG"):
    """``count`` photographs and what stands beside them, in two classes, by the patterns of their names."""
    for number in range(count):
        label = ("crack", "oil")[number % 2]
        put(root / photograph.format(c=label, n=number), encoded(make_image(number), kind))
        put(root / other.format(c=label, n=number), encoded(make(number), "PNG"))
    return root


NAMES = {
    "the same stem": ("{c}/{n}.jpg", "{c}/{n}.png", '["*.png"]'),
    "a false second suffix": ("{c}/{n}.jpg", "{c}/{n}.jpg.png", '["*.png"]'),
    "an ending": ("{c}/{n}.png", "{c}/{n}_mask.png", '["*_mask.png"]'),
    "GT": ("{c}/p{n}.png", "{c}/p{n}_GT.bmp", '["*_GT.bmp"]'),
    "a dash": ("{c}/{n}.png", "{c}/{n}-label.png", '["*-label.png"]'),
    "two endings": ("{c}/{n}_sat.png", "{c}/{n}_seg.png", '["*_seg.png"]'),
    "a folder in each class": ("{c}/{n}.png", "{c}/masks/{n}.png", '["masks"]'),
    "a folder that is taken for a class": ("{c}/{n}.png", "ground_truth/{c}/{n}_mask.png", '["*_mask.png"]'),
    "any ending": ("{c}/{n}.png", "{c}/{n}_m.png", '["*_m.png"]'),
    "any beginning": ("{c}/{n}.png", "{c}/defect-{n}.png", '["defect-*.png"]'),
    "a word after a dot": ("{c}/{n}.png", "{c}/{n}.x.png", None),
    "MVTec": ("test/{c}/{n:03d}.png", "ground_truth/{c}/{n:03d}.png", '["ground_truth"]'),
    "a folder by the name of the class": ("{c}/{n}.png", "{c}_masks/{n}.png", None),
    "VOC's folders": ("{c}/JPEGImages/{n}.png", "{c}/SegmentationClass/{n}.png", '["SegmentationClass"]'),
}


@pytest.mark.parametrize("name", NAMES)
def test_masks_next_to_photographs_are_refused_with_the_setting(tmp_path, name):
    photograph, other, pattern = NAMES[name]
    root = tree(tmp_path / "src", photograph, other, kind="PNG" if photograph.endswith("png") else "JPEG")
    text = refusal(root, tmp_path / "out")
    assert text.startswith("6 images look like masks of others")
    first = f"{other.format(c='crack', n=0)} beside {photograph.format(c='crack', n=0)}"
    assert first in text
    assert "ingest.companions=keep" in text
    found = audit(settings_of(root), 0).findings
    assert (found["usable"], found["problem"].splitlines()[0]) == (False, text.splitlines()[0])
    if pattern is not None:
        assert f"--set 'ingest.exclude={pattern}' leaves them out" in text
        summary = ingest(settings_of(root, exclude=[pattern[2:-2]]), tmp_path / "out", seed=0)
        assert (summary["images"], summary["labels"]) == (6, {"crack": 3, "oil": 3})
        assert summary["reasons"] == {"excluded": 6, "ok": 6}
    summary = ingest(settings_of(root, companions="drop"), tmp_path / "drop", seed=0)
    assert (summary["images"], summary["labels"]) == (6, {"crack": 3, "oil": 3})
    assert summary["reasons"] == {"mask": 6, "ok": 6}


@pytest.mark.parametrize("scheme", [0, 1, 2])
def test_kept_masks_stay_in_the_split_of_their_photograph(tmp_path, scheme):
    root = tree(tmp_path / "src", "{c}/{n}.jpg", "{c}/{n}_mask.png", count=20)
    summary = ingest(settings_of(root, companions="keep"), tmp_path / "out", seed=scheme)
    assert (summary["images"], summary["groups"]) == (40, 20)
    splits = {row["source"]: row["split"] for row in pq.read_table(tmp_path / "out/samples.parquet").to_pylist()}
    assert {splits[name] == splits[name.replace(".jpg", "_mask.png")] for name in splits if "jpg" in name} == {True}
    assert len(set(splits.values())) == 3


def test_a_photograph_saved_again_in_another_format_stays_in_its_split(tmp_path):
    again = {n: make_image(n).point(lambda value: max(0, value - 9)) for n in range(20)}  # developed differently
    root = tree(tmp_path / "src", "{c}/{n}.jpg", "{c}/{n}.tif", make=again.get, count=20)
    summary = ingest(settings_of(root), tmp_path / "out", seed=1)
    assert (summary["images"], summary["groups"]) == (40, 20)
    splits = {row["source"]: row["split"] for row in pq.read_table(tmp_path / "out/samples.parquet").to_pylist()}
    assert all(splits[name] == splits[name.replace(".jpg", ".tif")] for name in splits if "jpg" in name)


def test_masks_saved_as_jpeg_and_of_one_colour(tmp_path):
    def instances(number):
        return Image.fromarray((np.arange(1200).reshape(30, 40) // 200 * (number + 1)).astype(np.uint8))

    root = tree(tmp_path / "values", "{c}/{n}.jpg", "{c}/{n}.png", make=instances)
    assert "6 images look like masks" in refusal(root, tmp_path / "out")
    root = tmp_path / "jpeg"
    for number in range(6):
        put(root / f"{'ab'[number % 2]}/{number}.jpg", encoded(make_image(number, 200, 200), "JPEG"))
        put(root / f"{'ab'[number % 2]}/{number}_mask.jpg", encoded(mask(number, (200, 200)), "JPEG"))
    assert "*_mask.jpg" in refusal(root, tmp_path / "out")
    # Empty masks are the same bytes in both classes; they are no contradiction of labels once they are left out.
    root = tree(tmp_path / "empty", "{c}/{n}.jpg", "{c}/{n}.png", make=lambda number: Image.new("L", (40, 30)))
    assert "6 images look like masks" in refusal(root, tmp_path / "out")
    assert ingest(settings_of(root, companions="drop"), tmp_path / "out", seed=0)["images"] == 6


def test_names_alone_make_no_masks(tmp_path):
    root = tmp_path / "src"
    for number in range(6):
        put(root / f"mask/{number}.png", encoded(make_image(number)))  # people with and without a mask
        put(root / f"plain/{number}.png", encoded(make_image(100 + number)))
        put(root / f"edge/{number}_gt.png", encoded(make_image(200 + number)))
    assert ingest(settings_of(root), tmp_path / "out", seed=0)["images"] == 18
    drawn = tree(tmp_path / "drawn", "{c}/{n}.bmp", "{c}/{n}_b.png", make=lambda n: mask(n + 9), kind="BMP")
    for number in range(6):
        put(drawn / f"{('crack', 'oil')[number % 2]}/{number}.bmp", encoded(mask(number), "BMP"))
    assert ingest(settings_of(drawn), tmp_path / "out2", seed=0)["images"] == 12  # all of two colours


def test_without_a_pattern_for_the_masks_the_setting_is_named(tmp_path):
    root = tree(tmp_path / "src", "{c}/{n}.jpg", "{c}/{n}.png")
    for label in ("crack", "oil"):
        put(root / label / "photo.png", encoded(make_image(ord(label[0]))))
    text = refusal(root, tmp_path / "out")
    assert "--set ingest.companions=drop leaves them out" in text
    assert ingest(settings_of(root, companions="drop"), tmp_path / "out", seed=0)["images"] == 8


def test_unannotated_masks_are_no_bad_inputs(tmp_path):
    root = tmp_path / "voc"
    for number in range(6):
        put(root / f"JPEGImages/{number}.jpg", encoded(make_image(number), "JPEG"))
        put(root / f"SegmentationClass/{number}.png", encoded(mask(number)))
        put(root / f"Annotations/{number}.xml", voc_xml([("crack", "oil")[number % 2]]))
    summary = ingest(settings_of(root, source="voc"), tmp_path / "out", seed=0)
    assert (summary["images"], summary["reasons"]["mask"]) == (6, 6)
    put(root / "SegmentationClass/lonely.png", encoded(make_image(50)))  # a photograph is still an unlabelled one
    assert "no_annotation" in refusal(root, tmp_path / "out", source="voc")


def test_ambiguous_pairs_are_refused_with_a_pattern_for_the_masks(tmp_path):
    root = tmp_path / "voc"
    for number in range(4):
        put(root / f"{number}.jpg", encoded(make_image(number), "JPEG"))
        put(root / f"{number}.png", encoded(mask(number)))
        put(root / f"{number}.xml", voc_xml([("crack", "oil")[number % 2]]))
    text = refusal(root, tmp_path / "out", source="voc")
    assert "4 of them look like masks" in text
    assert """--set 'ingest.exclude=["*.png"]' leaves them out""" in text
    assert ingest(settings_of(root, source="voc", exclude=["*.png"]), tmp_path / "out", seed=0)["images"] == 4
    for number in range(4):
        put(root / f"{number}.png", encoded(make_image(number)))
    text = refusal(root, tmp_path / "out", source="voc")
    assert "4 of them look like second copies" in text
    assert """--set 'ingest.exclude=["*.png"]' leaves them out""" in text


def test_photographs_with_longer_names_are_no_masks(tmp_path):
    for number in range(4):
        put(tmp_path / "src" / "oil" / f"{number}.png", encoded(make_image(number)))
        put(tmp_path / "src" / "oil" / f"{number}_ir.png", encoded(make_image(50 + number).convert("L")))
        put(tmp_path / "src" / "rust" / f"{number}.png", encoded(make_image(70 + number)))
    put(tmp_path / "src" / "rust" / "1_b.png", encoded(mask(3)))  # one alone may be anything
    assert audit(settings_of(tmp_path / "src"), 0).findings["usable"]
