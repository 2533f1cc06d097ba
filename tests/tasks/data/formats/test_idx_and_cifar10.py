"""Readers of containers: idx files and CIFAR-10's batches."""

import gzip
import pickle
import struct

import numpy as np
import pytest

from models.errors import UserError
from tasks.data.dataset import load_dataset
from tasks.data.formats.cifar10 import reader as cifar10
from tasks.data.formats.idx import reader as idx
from tasks.data.ingest.ingest import ingest
from tests.support.format_rows import classes_of, rows_of, settings_of
from tests.support.voc_trees import put

DEBIAN = "/usr/share/datasets/fashion-mnist"


def idx_bytes(array):
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def fashion(root, train=12, test=5):
    pixels = np.random.default_rng(0).integers(0, 256, (train + test, 28, 28), dtype=np.uint8)
    labels = np.arange(train + test) % 10
    for name, part in (("train", slice(train)), ("t10k", slice(train, None))):
        put(root / f"{name}-images-idx3-ubyte.gz", gzip.compress(idx_bytes(pixels[part])))
        put(root / f"{name}-labels-idx1-ubyte", idx_bytes(labels[part]))
    return pixels, labels


def test_idx_pixels_labels_and_splits(tmp_path):
    pixels, labels = fashion(tmp_path / "src")
    put(tmp_path / "src/README.md", b"x")
    settings = settings_of("idx", tmp_path / "src").model_copy(update={"image_size": 32})
    settings = settings.model_validate(settings.model_dump() | {"split": {"scheme": "given", "val": 0.25}})
    summary = ingest(settings, tmp_path / "out", seed=0)
    data = load_dataset(tmp_path / "out")
    assert data.classes == classes_of("idx", tmp_path / "src") == idx.NAMES["fashion"]
    assert (data.targets.argmax(axis=1) == np.roll(labels, 5)).all()  # t10k comes before train
    assert summary["splits"]["test"] == 5
    assert 0 < summary["splits"]["val"] < 12  # carved out of train, since the source gives none
    assert summary["reasons"] == {"ok": 17, "metadata": 4, "other": 1}
    grey = data.images[5 + 3].astype(int)
    assert (grey[0] == grey[1]).all()
    assert abs(grey[0].mean() - pixels[3].mean()) < 8  # resized from 28 to 32


@pytest.mark.parametrize(
    "names",
    [
        "{}-images-idx3-ubyte {}-labels-idx1-ubyte",
        "{}-images.idx3-ubyte {}-labels.idx1-ubyte",
        "raw/{}-images-idx3-ubyte.gz raw/{}-labels-idx1-ubyte.gz",
        "fashion-{}-images-idx3-ubyte.gz fashion-{}-labels-idx1-ubyte.gz",
    ],
)
def test_idx_files_are_found_by_their_usual_names_and_keep_their_pixels(tmp_path, names):
    pixels, labels = fashion(tmp_path / "a")
    pack = gzip.compress if names.endswith(".gz") else bytes
    for name, part in (("train", slice(12)), ("t10k", slice(12, None))):
        for file, content in zip(names.format(name, name).split(), (pixels[part], labels[part]), strict=True):
            put(tmp_path / "b" / file, pack(idx_bytes(content)))
    assert "images" in idx.recognise(tmp_path / "b", [names.split()[0].format("train")])
    settings = settings_of("idx", tmp_path / "b")
    changes = {"image_size": 28, "split": {"scheme": "given", "val": 0.0}}
    ingest(settings.model_validate(settings.model_dump() | changes), tmp_path / "out", seed=0)
    data = load_dataset(tmp_path / "out")
    for split, part in (("train", slice(12)), ("test", slice(12, None))):
        rows = data.indices(split)
        assert (data.images[rows] == pixels[part][:, None]).all()  # no resampling
        assert (data.targets[rows].argmax(axis=1) == labels[part]).all()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("train-images-idx3-ubyte.gz", lambda data: data[:-9], "cannot read|truncated"),
        ("t10k-labels-idx1-ubyte", lambda data: data[:-1], "truncated"),
        ("t10k-labels-idx1-ubyte", lambda data: b"\0\0\x0d\1" + data[4:], "does not match the idx name"),
        ("t10k-labels-idx1-ubyte", lambda data: idx_bytes(np.zeros(4)), "5 images, 4 labels"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path, name, change, words):
    fashion(tmp_path)
    (tmp_path / name).write_bytes(change((tmp_path / name).read_bytes()))
    with pytest.raises(UserError, match=words):
        rows_of("idx", tmp_path, missing=[])


def test_idx_without_labels_and_a_label_out_of_range(tmp_path):
    fashion(tmp_path / "a")
    put(tmp_path / "a/t10k-labels-idx1-ubyte", idx_bytes(np.array([0, 1, 2, 3, 77])))
    virtual = [f"{name}-images-idx3-ubyte.gz/{i:06d}" for name, n in (("train", 12), ("t10k", 5)) for i in range(n)]
    rows = rows_of("idx", tmp_path / "a", missing=virtual)
    assert (rows[virtual[-1]].reason, rows[virtual[-1]].detail) == ("bad_annotation", "label 77, there are 10")
    (tmp_path / "a/train-labels-idx1-ubyte").unlink()
    with pytest.raises(UserError, match="no labels for train-images"):
        rows_of("idx", tmp_path / "a")


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


@pytest.mark.integration  # imports torchvision
def test_other_cifar10_batches_are_never_unpickled(tmp_path):
    folder, mark = tmp_path / "cifar-10-batches-py", tmp_path / "unpickled"
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        put(folder / name, pickle.dumps(Bomb(mark)))
    put(folder / "batches.meta", pickle.dumps(Bomb(mark)))
    assert cifar10.recognise(tmp_path, ["cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/batches.meta"])
    for root in (tmp_path, folder):
        with pytest.raises(UserError, match="not unpickled"):
            rows_of("cifar10", root)
    assert not mark.exists()


@pytest.mark.integration
def test_cifar10_batches_read_by_torchvision(tmp_path, monkeypatch):
    """The published batches are not at hand: torchvision's class is replaced by one with the same attributes."""
    import torchvision

    class Published:
        def __init__(self, root, train, download):
            assert not download
            self.data = np.full((3 if train else 2, 32, 32, 3), 7 if train else 9, dtype=np.uint8)
            self.data[:, 0, 0, 0] = np.arange(len(self.data))
            self.targets = [9, 0, 3][: len(self.data)]

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", Published)
    put(tmp_path / "cifar-10-batches-py/test_batch", b"x")
    virtual = [f"cifar-10-batches-py/train/0000{i}" for i in range(3)] + [
        f"cifar-10-batches-py/test/0000{i}" for i in range(2)
    ]
    rows = rows_of("cifar10", tmp_path, missing=virtual)
    assert [rows[name].labels for name in virtual] == [["truck"], ["airplane"], ["cat"], ["truck"], ["airplane"]]
    assert [rows[name].split for name in virtual] == ["train"] * 3 + ["test"] * 2


@pytest.mark.integration
def test_debians_fashion_mnist():
    from pathlib import Path

    if not Path(DEBIAN).is_dir():
        pytest.skip("the package dataset-fashion-mnist is not installed")
    settings = settings_of("idx", DEBIAN)
    counts = {"train": np.zeros(10, int), "test": np.zeros(10, int)}
    for sample in idx.read(Path(DEBIAN), settings.idx, settings, 0):
        if sample.labels:
            counts[sample.split][idx.NAMES["fashion"].index(sample.labels[0])] += 1
    assert counts["train"].tolist() == [6000] * 10
    assert counts["test"].tolist() == [1000] * 10
