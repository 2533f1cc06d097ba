"""The FLAIR reader: JSON with image files, and both HDF5 forms, all made here."""

import json

import h5py
import numpy as np
import pytest

from models.errors import UserError
from tasks.data.formats.flair.reader import recognise
from tasks.data.images.decode import DecodeError, Limits
from tests.support.format_rows import raw_rows, reasons, rows_of
from tests.support.voc_trees import encoded, make_image, put


def record(image, user, labels, partition="train", fine=("rose",)):
    return {
        "image_id": image, "user_id": user, "labels": labels, "fine_grained_labels": list(fine), "partition": partition
    }  # fmt: skip


def listed(root, records, images):
    put(root / "labels_and_metadata.json", json.dumps(records).encode())
    for number, image in enumerate(images):
        put(root / f"small_images/{image}.jpg", encoded(make_image(number), "JPEG"))


def test_json_with_images(tmp_path):
    records = [
        record("1", "99@N00", ["plant", "animal"]),
        record("2", "99@N00", [], "dev"),
        record("3", "7@N01", ["food"], "test", fine=("bread", "rose")),
        record("3", "7@N01", ["food"], "test", fine=("bread", "rose")),
        record("4", "7@N01", ["food"]),
        record("4", "7@N01", ["plant"]),
        record("gone", "7@N01", ["plant"]),
    ]
    listed(tmp_path, records, ["1", "2", "3", "4", "extra"])
    put(tmp_path / "label_relationship.txt", b"rose: plant")
    rows = rows_of("flair", tmp_path, missing=["gone"])
    assert reasons(rows) == {
        "labels_and_metadata.json": ("ok", "metadata"),
        "label_relationship.txt": ("ignored", "other"),
        "small_images/1.jpg": ("ok", ""),
        "small_images/2.jpg": ("ok", ""),
        "small_images/3.jpg": ("fixed", "repeated"),
        "small_images/4.jpg": ("quarantined", "ambiguous_pair"),
        "small_images/extra.jpg": ("quarantined", "no_annotation"),
        "gone": ("quarantined", "no_image"),
    }
    first, second, third = (rows[f"small_images/{n}.jpg"] for n in (1, 2, 3))
    assert (first.site, first.labels, first.split) == ("99@N00", ["animal", "plant"], "train")
    assert (second.labels, second.split) == ([], "val")
    assert (third.site, third.split) == ("7@N01", "test")
    fine = rows_of("flair", tmp_path, missing=["gone"], labels="fine")
    assert fine["small_images/3.jpg"].labels == ["bread", "rose"]


def test_faulty_json_entries_affect_only_their_image(tmp_path):
    records = [
        record(1, "u", ["plant"]),  # a number
        record("2", "u", "plant"),
        record("3", "u", ["plant", 7]),
        record("4", "u", ["plant"], "holdout"),
        record("5", None, ["plant"]),
        record(None, "u", ["plant"]),
        {"image_id": "6", "user_id": "u"},
        "no object",
    ]
    listed(tmp_path, records, "123456")
    rows = rows_of("flair", tmp_path, missing=[f"labels_and_metadata.json/{n}" for n in (5, 7)])
    found = {path.rpartition("/")[2]: (row.reason, row.detail) for path, row in rows.items()}
    assert found == {
        "labels_and_metadata.json": ("metadata", ""),
        "1.jpg": ("", ""),
        "2.jpg": ("bad_annotation", "labels is no list"),
        "3.jpg": ("bad_annotation", "a label is no text"),
        "4.jpg": ("bad_annotation", "the partition 'holdout' is none of train, val, validation, dev, test"),
        "5.jpg": ("no_site", "it has no user_id"),
        "6.jpg": ("no_annotation", "the entry has no labels"),
        "5": ("no_image", "an entry without image_id"),
        "7": ("no_image", "an entry without image_id"),
    }


def test_small_images_are_preferred_to_raw_ones(tmp_path):
    listed(tmp_path, [record("1", "u", ["plant"]), record("2", "u", ["food"])], "1")
    put(tmp_path / "raw_images/1.jpg", encoded(make_image(8, 90, 80), "JPEG"))
    put(tmp_path / "raw_images/2.jpg", encoded(make_image(9, 90, 80), "JPEG"))
    put(tmp_path / "copy.h5", b"\x89HDF\r\n\x1a\n of the same images")
    rows = rows_of("flair", tmp_path)
    assert {path: row.reason for path, row in rows.items() if row.reason} == {
        "labels_and_metadata.json": "metadata",
        "raw_images/1.jpg": "other",
        "copy.h5": "other",
    }
    assert rows["raw_images/1.jpg"].detail == "small_images/1.jpg is read"
    assert rows["raw_images/2.jpg"].labels == ["food"]


def write_hdf5(path, at, images, labels, name="images", **more):
    with h5py.File(path, "a") as file:
        group = file.create_group(at)
        group[name] = images
        group["labels"] = np.array(labels, dtype=object)
        for key, value in more.items():
            group[key] = np.array(value, dtype=object)


def pixels(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 20, 24, 3), dtype=np.uint8)


def test_hdf5_with_a_group_per_partition_and_user(tmp_path):
    file = tmp_path / "flair.hdf5"
    write_hdf5(file, "train/u1", pixels(2), ["plant|animal", ""], image_ids=["a", "b"])
    write_hdf5(file, "test/u2", pixels(1, 1), ["food"], fine_grained_labels=["bread"])
    names = ["flair.hdf5/train/u1/a", "flair.hdf5/train/u1/b", "flair.hdf5/test/u2/000000"]
    rows = rows_of("flair", tmp_path, missing=names)
    assert [(rows[n].site, rows[n].labels, rows[n].split, rows[n].reason) for n in names] == [
        ("u1", ["animal", "plant"], "train", ""),
        ("u1", [], "train", ""),  # as an empty list in the JSON, from which such a file is made
        ("u2", ["food"], "test", ""),
    ]
    assert (rows[names[0]].width, rows[names[0]].height) == (24, 20)
    assert rows_of("flair", file, root=tmp_path, missing=names)[names[2]].site == "u2"
    fine = rows_of("flair", tmp_path, missing=names, labels="fine")
    assert (fine[names[0]].reason, fine[names[2]].labels) == ("bad_annotation", ["bread"])
    assert "lacks fine_grained_labels" in fine[names[0]].detail


def test_hdf5_with_examples_and_encoded_images(tmp_path):
    file = tmp_path / "flair_val.h5"
    stored = np.array([np.frombuffer(encoded(make_image(5), "JPEG"), np.uint8)], dtype=object)
    with h5py.File(file, "w") as val:
        group = val.create_group("examples/u9")
        group.create_dataset("image", (1,), dtype=h5py.vlen_dtype(np.uint8))[0] = stored[0]
        group["labels"] = np.array(["plant"], dtype=object)
    name = "flair_val.h5/examples/u9/000000"
    row = rows_of("flair", tmp_path, missing=[name])[name]
    assert (row.site, row.labels, row.split, row.width, row.height) == ("u9", ["plant"], "val", 40, 30)


def test_hdf5_with_label_indices_and_by_image(tmp_path):
    with h5py.File(tmp_path / "pfl.hdf5", "w") as file:
        file["metadata/label_mapping"] = json.dumps({"animal": 0, "food": 1, "plant": 2})
        file["val/u1/images"] = pixels(2)
        file["val/u1/labels_row"], file["val/u1/labels_col"] = np.array([0, 1, 0]), np.array([2, 1, 0])
    names = [f"pfl.hdf5/val/u1/00000{i}" for i in range(2)]
    rows = rows_of("flair", tmp_path, missing=names)
    assert [(rows[n].site, rows[n].labels, rows[n].split) for n in names] == [
        ("u1", ["animal", "plant"], "val"),
        ("u1", ["food"], "val"),
    ]
    (tmp_path / "pfl.hdf5").rename(tmp_path.parent / f"{tmp_path.name}.old")
    with h5py.File(tmp_path / "ResNet18.h5", "w") as file:
        file["layer/weights"] = np.arange(3.0)
    with h5py.File(tmp_path / "pfl.hdf5", "w") as file:
        for image, user in (("11", "u2"), ("12", "u3")):
            file[f"test/{image}/image"], file[f"test/{image}/user_id"] = pixels(1)[0], user
            file[f"test/{image}/labels"] = "plant|food"
    names = ["pfl.hdf5/test/11", "pfl.hdf5/test/12"]
    rows = rows_of("flair", tmp_path, missing=names)
    assert [(rows[n].site, rows[n].labels, rows[n].width) for n in names] == [
        ("u2", ["food", "plant"], 24),
        ("u3", ["food", "plant"], 24),
    ]


def test_other_data_are_refused_as_flair(tmp_path):
    put(tmp_path / "x.txt", b"")
    with pytest.raises(UserError, match="no FLAIR data"):
        rows_of("flair", tmp_path)
    put(tmp_path / "labels_and_metadata.json", b'{"images": []}')
    with pytest.raises(UserError, match="a list with an object for each image"):
        rows_of("flair", tmp_path)
    put(tmp_path / "labels_and_metadata.json", b"[")
    with pytest.raises(UserError, match="cannot read the metadata"):
        rows_of("flair", tmp_path)
    (tmp_path / "labels_and_metadata.json").unlink()
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["numbers"] = np.arange(3)
    with pytest.raises(UserError, match="no user's group"):
        rows_of("flair", tmp_path)
    data = (tmp_path / "other.h5").read_bytes()
    (tmp_path / "other.h5").write_bytes(data[: len(data) // 3])
    with pytest.raises(UserError, match="cannot read the HDF5"):
        rows_of("flair", tmp_path)


def test_faulty_hdf5_groups_affect_only_their_images(tmp_path):
    elsewhere = tmp_path.parent / f"{tmp_path.name}.h5"
    with h5py.File(elsewhere, "w") as file:
        file["images"] = pixels(1)
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["metadata/label_mapping"] = json.dumps({"animal": 0, "food": 1})
        for user, columns in (("a", [1, 0]), ("b", [1, 9])):
            file[f"train/{user}/images"] = pixels(2, ord(user))
            file[f"train/{user}/labels_row"], file[f"train/{user}/labels_col"] = np.array([0, 1]), np.array(columns)
        file["train/c/labels_row"] = file["train/c/labels_col"] = np.array([0])
        file["train/c/images"] = h5py.ExternalLink(str(elsewhere), "images")
        file["train/d/images"] = pixels(2).astype(np.float32)
        file["train/d/labels"] = np.array(["food"] * 3, dtype=object)
        file["extra/e/images"] = pixels(1)
    names = ["a/000000", "a/000001", "b/000000", "b/000001", "c", "d/000000", "d/000001"]
    rows = rows_of("flair", tmp_path, missing=["f.h5/extra", *(f"f.h5/train/{name}" for name in names)])
    found = {path.removeprefix("f.h5/train/"): (row.reason, row.detail) for path, row in rows.items() if row.reason}
    assert found == {
        "f.h5": ("metadata", ""),
        "b/000001": ("bad_annotation", "label index 9, there are 2 labels"),
        "c": ("no_image", "no images that can be read"),
        "d/000000": ("bad_mode", "labels has 3 entries for 2 image(s); an array float32 [20, 24, 3]; bad_annotation"),
        "d/000001": ("bad_mode", "labels has 3 entries for 2 image(s); an array float32 [20, 24, 3]; bad_annotation"),
        "f.h5/extra": ("no_image", "no group of a partition (train, val, validation, dev, test)"),
    }
    assert [rows[f"f.h5/train/{name}"].labels for name in names[:3]] == [["food"], ["animal"], ["food"]]
    columns = {"rule": "column", "column": "partition"}
    assert (
        rows_of("flair", path, site=columns, root=tmp_path, missing=rows.keys() - {"f.h5"})["f.h5/train/a/000000"].site
        == "train"
    )


def test_hdf5_damaged_or_changed_after_reading(tmp_path):
    path = tmp_path / "f.h5"
    write_hdf5(path, "train/u1", pixels(2), ["plant", "food"])
    samples = list(raw_rows("flair", path))
    assert samples[1].image.load(Limits()).width == 24
    key = samples[1].image.cache_key()
    path.write_bytes(path.read_bytes()[:-900])
    assert samples[1].image.cache_key() != key
    with pytest.raises(DecodeError, match="truncated"):
        samples[1].image.load(Limits())


def test_only_hdf5_with_images_is_recognised(tmp_path):
    with h5py.File(tmp_path / "ResNet18.h5", "w") as file:
        file["train/layer"] = np.arange(3.0)
    put(tmp_path / "empty.h5", b"")
    assert recognise(tmp_path, ["empty.h5", "ResNet18.h5"]) == ""
    write_hdf5(tmp_path / "f.hdf5", "train/u1", pixels(1), ["plant"])
    assert recognise(tmp_path, ["ResNet18.h5", "f.hdf5"]) == recognise(tmp_path / "f.hdf5", ["f.hdf5"]) == "f.hdf5"
