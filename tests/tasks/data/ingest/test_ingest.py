"""Ingest: the data set, the manifest, refusals, and crashes that lose nothing."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from models.errors import UserError
from models.files import replacing_folder
from tasks.data.dataset import content_digest, load_dataset, sample_lines
from tasks.data.images.resizing import resize
from tasks.data.ingest.ingest import IngestSettings, ingest
from tasks.data.ingest.manifest import COUNTED_BAD, REASONS
from tests.support.voc_trees import add, encoded, make_image, put, sound_tree, voc_xml


def settings_for(root, **changes):
    return IngestSettings(source="voc", path=root, image_size=32, **changes)


def manifest_of(out):
    return {row["path"]: row for row in pq.read_table(out / "manifest.parquet").to_pylist()}


def test_pixels_labels_and_tables(tmp_path):
    root, out = sound_tree(tmp_path / "src"), tmp_path / "dataset"
    calls = []
    summary = ingest(settings_for(root), out, seed=3, progress=lambda done, total: calls.append((done, total)))
    data = load_dataset(out)
    assert data.classes == ["crack", "oil", "rust"]
    assert data.images.shape == (30, 3, 32, 32)
    # Image i is sound_tree's image i; its labels are i mod 3 and for every third image also the next one.
    for i in (0, 7, 29):
        assert (data.images[i] == resize(np.asarray(make_image(i)), 32).transpose(2, 0, 1)).all()
    assert data.targets[:3].tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert summary["labels"] == {"crack": 10, "oil": 20, "rust": 10}
    assert summary["splits"] == {name: len(data.indices(name)) for name in ("train", "val", "test")}
    assert summary["splits"] == {"train": 21, "val": 3, "test": 6}
    assert summary["reasons"] == {"annotation": 30, "ok": 30}
    assert json.loads((out / "dataset.json").read_text()) == summary
    assert calls[-1] == (60, 60)
    assert load_dataset(out) is data
    assert not data.images.flags.writeable
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_same_settings_and_seed_give_the_same_bytes(tmp_path):
    root = sound_tree(tmp_path / "src")
    first, second, other = (ingest(settings_for(root), tmp_path / f"d{i}", seed=s) for i, s in enumerate((1, 1, 2)))
    assert first["digest"] == second["digest"] != other["digest"]
    assert (tmp_path / "d0/images.npy").read_bytes() == (tmp_path / "d1/images.npy").read_bytes()
    samples = pq.read_table(tmp_path / "d0/samples.parquet").to_pylist()
    images, classes = tmp_path / "d0/images.npy", ["crack", "oil", "rust"]
    assert content_digest(images, sample_lines(samples), classes) == first["digest"]
    samples[0]["labels"] = []
    assert content_digest(images, sample_lines(samples), classes) != first["digest"]


def test_one_tree_with_every_kind_of_fault(tmp_path):
    root = sound_tree(tmp_path / "变电站 一", images=4)
    jpeg = encoded(make_image(9, 64, 64), "JPEG")
    exif = Image.Exif()
    exif[0x0112] = 8
    odd = {
        "empty.jpg": (b"", "empty"),
        "page.jpg": (b"<html>not found</html>", "not_an_image"),
        "cut.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "turned.JPEG": (encoded(make_image(11), "JPEG", exif=exif), "exif"),
        "print.jpg": (encoded(make_image(12).convert("CMYK"), "JPEG"), "cmyk"),
        "thermal.png": (encoded(Image.fromarray(np.full((20, 20), 514, dtype=np.uint16))), "gray16"),
        "icon.png": (encoded(make_image(13).quantize(4), "PNG", transparency=1), "alpha"),
        "same.png": (encoded(make_image(0)), "duplicate"),
    }
    for name, (data, _) in odd.items():
        put(root / "JPEGImages" / name, data)
        put(root / "Annotations" / f"{name.split('.')[0]}.xml", voc_xml(["crack", "oil"], encoding="gbk"))
    put(root / ".cache/x.bin", b"1")
    out = tmp_path / "dataset"
    with pytest.raises(UserError, match="3 of 11 inputs"):  # 4 sound, 4 repaired, 3 bad; the duplicate is neither
        ingest(settings_for(root), out, seed=0)
    summary = ingest(settings_for(root, max_bad_share=0.5), out, seed=0)
    rows = manifest_of(out)
    assert sorted(rows) == sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    for name, (_, reason) in odd.items():
        assert rows[f"JPEGImages/{name}"]["reason"] == reason
    assert rows["JPEGImages/turned.JPEG"]["width"] == 30
    assert rows["Annotations/cut.xml"]["reason"] == "annotation", "declared GBK, but plain ASCII: nothing to repair"
    assert summary["images"] == 8
    assert sum(summary["reasons"].values()) == len(rows) == summary["files"]
    assert not (tmp_path / "dataset.rejected-manifest.parquet").exists()


def test_duplicates_across_sites(tmp_path):
    root = tmp_path / "src"
    for site in ("a", "b"):
        sound_tree(root / site, images=3)
    put(root / "b/JPEGImages/001.png", encoded(make_image(50)))
    put(root / "b/Annotations/002.xml", voc_xml(["crack"]))  # in site a, 002 is rust
    summary = ingest(settings_for(root, site={"rule": "folder"}, max_bad_share=0.5), tmp_path / "out", seed=0)
    rows = manifest_of(tmp_path / "out")
    reasons = {path: row["reason"] for path, row in rows.items() if path.endswith("png")}
    assert reasons == {
        "a/JPEGImages/000.png": "",
        "a/JPEGImages/001.png": "",
        "a/JPEGImages/002.png": "duplicate_conflict",
        "b/JPEGImages/000.png": "duplicate",
        "b/JPEGImages/001.png": "",
        "b/JPEGImages/002.png": "duplicate_conflict",
    }
    assert summary["sites"] == {"a": 2, "b": 1}
    data = load_dataset(tmp_path / "out")
    # Row 2 was written after the row that the conflict takes out, so it had to move.
    assert (data.images[2] == resize(np.asarray(make_image(50)), 32).transpose(2, 0, 1)).all()
    assert data.sites.tolist() == ["a", "a", "b"]


def test_equal_pixels_in_different_files_stay_in_one_split(tmp_path):
    root = sound_tree(tmp_path / "src", images=20)
    for i in range(20):
        put(root / f"again/{i:03d}b.bmp", encoded(make_image(i), "BMP"))
        put(root / f"again/{i:03d}b.xml", (root / f"Annotations/{i:03d}.xml").read_bytes())
    ingest(settings_for(root), tmp_path / "out", seed=1)
    samples = pq.read_table(tmp_path / "out/samples.parquet").to_pylist()
    split = {sample["source"].split("/")[-1][:4]: sample["split"] for sample in samples}
    assert len(samples) == 40
    assert all(split[f"{i:03d}."] == split[f"{i:03d}b"] for i in range(20))


def test_unknown_labels_are_reported_and_the_old_data_set_stays(tmp_path):
    root, out = sound_tree(tmp_path / "src"), tmp_path / "dataset"
    ingest(settings_for(root), out, seed=0)
    before = (out / "dataset.json").read_bytes()
    for i, label in enumerate(("Crack", "cracck", "cracck", "zzzz")):
        add(root, f"new{i}", [label], 100 + i)
    with pytest.raises(UserError) as caught:
        ingest(settings_for(root, classes=["crack", "oil", "rust"]), out, seed=0)
    text = str(caught.value)
    assert "3 unknown label(s)" in text
    assert "'cracck' in 2 image(s), nearest known label 'crack': JPEGImages/new1.png, JPEGImages/new2.png" in text
    assert "'Crack' in 1 image(s), nearest known label 'crack'" in text
    assert "'zzzz' in 1 image(s), no known label is similar" in text
    rejected = tmp_path / "dataset.rejected-manifest.parquet"
    assert str(rejected) in text
    assert pq.read_table(rejected).num_rows == 68
    assert (out / "dataset.json").read_bytes() == before


def test_labels_are_stripped_composed_and_mapped(tmp_path):
    root = tmp_path / "src"
    for i, label in enumerate(["crack ", "cracck", "re\u0301seau", "r\u00e9seau", "crack"]):
        add(root, str(i), [label], i)
    classes = ["r\u00e9seau", "crack", "never"]
    aliases = {"cracck": "crack", "oill": "crack"}
    summary = ingest(settings_for(root, classes=classes, label_aliases=aliases), tmp_path / "out", seed=0)
    assert summary["labels"] == {"r\u00e9seau": 2, "crack": 3, "never": 0}
    assert summary["aliases"] == {"cracck": 1, "oill": 0}
    assert load_dataset(tmp_path / "out").targets.tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_negatives_are_kept_or_dropped_and_never_unlabelled(tmp_path):
    root = sound_tree(tmp_path / "src", images=12)
    add(root, "nothing", [], 50)
    put(root / "JPEGImages/unlabelled.png", encoded(make_image(51)))
    kept = ingest(settings_for(root, max_bad_share=0.2), tmp_path / "kept", seed=0)
    dropped = ingest(settings_for(root, max_bad_share=0.2, keep_negatives=False), tmp_path / "dropped", seed=0)
    assert (kept["images"], kept["negatives"], dropped["images"]) == (13, 1, 12)
    assert manifest_of(tmp_path / "dropped")["JPEGImages/nothing.png"]["status"] == "ignored"
    row = manifest_of(tmp_path / "kept")["JPEGImages/unlabelled.png"]
    assert (row["reason"], row["labels"]) == ("no_annotation", None)
    assert manifest_of(tmp_path / "kept")["JPEGImages/nothing.png"]["labels"] == []


def test_sources_without_images_or_labels(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images found") as caught:
        ingest(settings_for(tmp_path / "empty"), tmp_path / "out", seed=0)
    assert str(tmp_path / "empty") in str(caught.value)
    assert "JPEGImages" in str(caught.value)
    add(tmp_path / "bare", "a", [], 0)
    with pytest.raises(UserError, match="no image has a label"):
        ingest(settings_for(tmp_path / "bare"), tmp_path / "out", seed=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": ["a", "b"], "label_aliases": {"x": "c"}},
        {"label_aliases": {"x": "y", "y": "z"}},
        {"classes": ["a", " a"]},
        {"classes": []},
        {"image_size": 15},
        {"background": [0, 0, 256]},
        {"split": {"val": 0.5, "test": 0.5}},
    ],
)
def test_contradicting_settings_are_refused(changes):
    with pytest.raises(ValidationError):
        IngestSettings(**changes)


def test_a_foreign_output_folder_is_left_alone(tmp_path):
    put(tmp_path / "mine/thesis.txt", b"years of work")
    with pytest.raises(UserError, match="holds something else"):
        ingest(settings_for(sound_tree(tmp_path / "src")), tmp_path / "mine", seed=0)
    assert (tmp_path / "mine/thesis.txt").read_bytes() == b"years of work"


def test_a_crash_between_the_renames_loses_nothing(tmp_path):
    put(tmp_path / ".data.old/marker", b"1")
    with pytest.raises(KeyboardInterrupt), replacing_folder(tmp_path / "data", "marker"):
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert (tmp_path / "data/marker").read_bytes() == b"1"


def test_damaged_data_sets_are_refused(tmp_path):
    with pytest.raises(UserError, match="fedscene data ingest"):
        load_dataset(tmp_path / "none")
    out = tmp_path / "dataset"
    ingest(settings_for(sound_tree(tmp_path / "src", images=9)), out, seed=0)
    pixels = (out / "images.npy").read_bytes()
    (out / "images.npy").write_bytes(pixels[:-1])
    with pytest.raises(UserError, match=r"images\.npy"):
        load_dataset(out)
    (out / "images.npy").write_bytes(pixels)
    (out / "classes.json").write_text('["crack", "oil"]')
    with pytest.raises(UserError, match=r"classes\.json"):
        load_dataset(out)


def test_synthetic_data_with_the_default_settings(tmp_path):
    summary = ingest(IngestSettings(synthetic={"images": 30, "sites": 2}), tmp_path / "out", seed=0)
    assert (summary["images"], len(summary["sites"]), len(summary["labels"])) == (30, 2, 16)
    assert load_dataset(tmp_path / "out").images.shape == (30, 3, 64, 64)


def test_counted_reasons_are_in_the_closed_list():
    assert set(REASONS) >= COUNTED_BAD
    assert not COUNTED_BAD & {"", "duplicate", "hidden", "other", "annotation"}


def test_the_documentation_lists_every_reason_with_its_meaning():
    page = (Path(__file__).parents[4] / "docs/your-images.md").read_text(encoding="utf-8")
    assert all(f"| `{code}` | {meaning} |" in page for code, meaning in REASONS.items())


def test_squash_leaves_the_digest_and_other_ways_change_it(tmp_path):
    root = sound_tree(tmp_path / "src")
    put(root / "JPEGImages" / "wide.png", encoded(make_image(3).resize((90, 40)), "PNG"))
    digests = {}
    for how in (None, "squash", "letterbox", "crop"):
        changes = {} if how is None else {"resize": how}
        summary = ingest(settings_for(root, max_bad_share=1, **changes), tmp_path / str(how), seed=3)
        digests[how] = summary["digest"]
        assert summary["settings"]["resize"] == (how or "squash")
    assert digests[None] == digests["squash"]
    assert len(set(digests.values())) == 3
