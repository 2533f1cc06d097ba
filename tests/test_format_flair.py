"""The FLAIR reader: JSON with image files, and both HDF5 forms, all made here."""

import json

import h5py
import numpy as np
import pytest
from format_rows import reasons, rows_of
from voc_trees import encoded, picture, put

from models.errors import UserError


def record(image, user, labels, partition="train", fine=("rose",)):
    return {
        "image_id": image, "user_id": user, "labels": labels, "fine_grained_labels": list(fine), "partition": partition
    }  # fmt: skip


def listed(root, records, images):
    put(root / "labels_and_metadata.json", json.dumps(records).encode())
    for number, image in enumerate(images):
        put(root / f"small_images/{image}.jpg", encoded(picture(number), "JPEG"))


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
        ("u1", None, "train", "no_annotation"),  # no label is not "none of them"
        ("u2", ["food"], "test", ""),
    ]
    assert (rows[names[0]].width, rows[names[0]].height) == (24, 20)
    assert rows_of("flair", file, root=tmp_path, missing=names)[names[2]].site == "u2"
    with pytest.raises(UserError, match="fine_grained_labels"):
        rows_of("flair", tmp_path, missing=names, labels="fine")


def test_hdf5_with_examples_and_encoded_pictures(tmp_path):
    file = tmp_path / "flair_val.h5"
    stored = np.array([np.frombuffer(encoded(picture(5), "JPEG"), np.uint8)], dtype=object)
    with h5py.File(file, "w") as made:
        group = made.create_group("examples/u9")
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


def test_what_is_no_flair(tmp_path):
    put(tmp_path / "x.txt", b"")
    with pytest.raises(UserError, match="no FLAIR data"):
        rows_of("flair", tmp_path)
    put(tmp_path / "labels_and_metadata.json", b'[{"image_id": 1}]')
    with pytest.raises(UserError, match="record 0"):
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
