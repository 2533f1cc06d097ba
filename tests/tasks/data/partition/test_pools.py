"""Local test sets, labelled and unlabelled pools with stream chunks, and feature skew."""

import dataclasses

import numpy as np
import pytest

from models.errors import UserError
from tasks.client.feature_skew import SkewedImages, transformed
from tasks.client.local_data import client_data
from tasks.data.clients import load_clients
from tasks.data.dataset import load_dataset
from tasks.data.partition import PartitionSettings, partition
from tasks.data.partition.divide import divide
from tasks.data.partition.feature_skew import client_features
from tasks.data.partition.settings import FeatureSettings
from tests.support.partition_data import in_memory, owners_of, random_dataset, shuffled


def iid(clients=4, min_size=5, **more):
    return PartitionSettings(scheme="iid", clients=clients, min_size=min_size, **more)


def test_local_splits_are_stratified_and_leave_the_common_test_set():
    splits = np.where(np.arange(460) < 400, "train", "test")
    data = random_dataset(460, splits=splits)
    found = divide(data, iid(local={"scheme": "local", "val": 0.1, "test": 0.25}), 3)
    for rows in found.rows.values():
        sizes = {split: len(rows.chosen(split)) for split in ("train", "val", "test")}
        assert sizes == pytest.approx({"train": 65, "val": 10, "test": 25}, abs=4)
        positives = data.targets[rows.index].sum(axis=0)
        share = data.targets[rows.chosen("test")].sum(axis=0) / np.maximum(positives, 1)
        assert share[positives >= 8] == pytest.approx(0.25, abs=0.13)
    assert np.sort(np.concatenate([r.index for r in found.rows.values()])).tolist() == list(range(400))
    assert owners_of(
        shuffled(data), divide(shuffled(data), iid(local={"scheme": "local", "val": 0.1}), 3)
    ) == owners_of(data, divide(data, iid(local={"scheme": "local", "val": 0.1}), 3))


def test_groups_are_never_divided_between_training_and_test():
    groups = np.array([""] * 120 + [f"burst {i // 4}" for i in range(80)])
    data = random_dataset(200, groups=groups, sites=np.array(["a", "b"])[(np.arange(200) // 4) % 2])
    for options in (iid(), PartitionSettings(min_size=5)):  # bursts across clients, and each in one site
        options = options.model_copy(update={"local": options.local.model_copy(update={"scheme": "local"})})
        owners = owners_of(data, divide(data, options, 0))
        used = {}
        for sample, group in zip(data.sample_ids.tolist(), groups.tolist(), strict=True):
            client, split, *_ = owners[sample]
            used.setdefault(group or sample, set()).add(split if split != "train" else (split, client))
        # In test or val: alone there. Spread over several clients: all for training.
        assert all(len(places) == 1 or not places & {"val", "test"} for places in used.values())
        tested = {group for group, places in used.items() if "test" in places and group.startswith("burst")}
        assert bool(tested) == (options.scheme == "natural")


def test_a_client_without_images_to_test_on_is_named():
    data = in_memory(np.ones((8, 1)), groups=["same"] * 8, sites=["a"] * 8)
    with pytest.raises(UserError, match="a: 8 images, 1 that no other"):
        divide(data, PartitionSettings(min_size=1, local={"scheme": "local"}), 0)


def test_matched_test_images_follow_the_training_shares():
    # Label 0 and label 1 exclude each other; shares of the test images follow those of the training images.
    kinds = np.arange(1200) % 2
    data = in_memory(np.eye(2, dtype=np.uint8)[kinds], splits=np.repeat(["train", "val", "test"], [800, 100, 300]))
    options = PartitionSettings(
        scheme="dirichlet_label", clients=4, alpha=0.5, min_size=20, local={"scheme": "matched"}
    )
    found = divide(data, options, 1)
    for split, part in (("val", 100), ("test", 300)):
        for rows in found.rows.values():
            local, train = data.targets[rows.chosen(split)].sum(axis=0), data.targets[rows.chosen("train")].sum(axis=0)
            assert abs(local - train * part / 800).max() <= 1
    everything = np.sort(np.concatenate([rows.index for rows in found.rows.values()]))
    assert everything.tolist() == list(range(1200))
    alone = in_memory(np.ones((9, 1)), sites=list("aaaabbbbc"), splits=["train", "train", "test", "val"] * 2 + ["test"])
    natural = divide(alone, PartitionSettings(min_size=1, local={"scheme": "matched"}), 0)
    assert {c: rows.index.tolist() for c, rows in natural.rows.items()} == {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}
    few = in_memory(np.ones((12, 1)), splits=["train"] * 10 + ["test"] * 2)
    assert divide(few, iid(5, 2, local={"scheme": "matched"}), 0).assignment.warnings == [
        "3 of 5 clients got no test image (local.scheme matched)"
    ]


@pytest.mark.parametrize("balanced", [False, True])
def test_each_client_gets_its_number_of_labelled_images(balanced):
    data = in_memory(np.eye(3, dtype=np.uint8)[np.arange(300) % 3])
    labelled = {"where": "clients", "per_class": 4, "balanced": balanced, "streaming": 5}
    options = PartitionSettings(scheme="dirichlet_label", clients=3, alpha=0.2, min_size=9, labelled=labelled)
    found = divide(data, options, 2)
    assert sum(len(rows.index) for rows in found.rows.values()) == 300
    for rows in found.rows.values():
        counts = data.targets[rows.chosen("train", "labelled")].sum(axis=0)
        positives = data.targets[rows.index].sum(axis=0)
        assert counts.tolist() == ([4, 4, 4] if balanced else np.minimum(positives, 4).tolist())
        sizes = [len(rows.chosen("train", "unlabelled", chunk)) for chunk in range(5)]
        assert sum(sizes) == len(rows.chosen("train", "unlabelled"))
        assert max(sizes) - min(sizes) <= 1
        assert (rows.chunk[rows.pool == "labelled"] == 0).all()
    assert not len(found.server)
    own_tests = options.model_copy(update={"local": options.local.model_copy(update={"scheme": "local"})})
    for rows in divide(data, own_tests, 2).rows.values():
        assert set(rows.pool[rows.split != "train"].tolist()) == {"labelled"}
        if balanced:  # held-out labelled images are training images
            assert data.targets[rows.chosen("train", "labelled")].sum(axis=0).tolist() == [4, 4, 4]


def test_labelled_images_at_the_server_are_held_out():
    data = in_memory(np.eye(3, dtype=np.uint8)[np.arange(300) % 3])
    found = divide(data, iid(labelled={"where": "server", "per_class": 10}), 2)
    assert data.targets[found.server].sum(axis=0).tolist() == [10, 10, 10]
    rest = np.concatenate([rows.chosen("train", "unlabelled") for rows in found.rows.values()])
    assert np.sort(np.concatenate([rest, found.server])).tolist() == list(range(300))
    assert not any(len(rows.chosen("train", "labelled")) for rows in found.rows.values())


@pytest.fixture
def written(tiny_data, tmp_path):
    """``written(**settings) -> (clients, folder)``: the tiny data set divided among four clients."""

    def write(name="clients", **more):
        partition(tiny_data.dataset, iid(min_size=2, **more), tmp_path / name, seed=1)
        return load_clients(tmp_path / name), tmp_path / name

    return write


def test_pools_are_read_back_from_disk(written, make_run):
    clients, folder = written(labelled={"where": "server", "per_class": 1}, local={"scheme": "local"})
    assert len(clients.server) == clients.summary["server"]["images"] > 0
    assert clients.ids == [f"client-00{i}" for i in range(4)]
    for client in clients.ids:
        assert len(clients.rows(client, pool="unlabelled")) == clients.summary["clients"][client]["images"]
        assert len(clients.rows(client, "test")) == clients.summary["clients"][client]["splits"]["test"] >= 1
        assert not len(clients.indices[client])
    with pytest.raises(UserError, match=r"partition.labelled.where\n.*all or clients\n.*server"):
        client_data(make_run(clients=str(folder))[0], clients.ids[0])


def test_the_digest_covers_everything_that_a_partition_decides(written):
    changes = (
        *({}, {"local": {"scheme": "local"}}, {"local": {"scheme": "matched"}}, {"features": {"kind": "noise"}}),
        *({"labelled": {"where": "clients", "per_class": 1}}, {"labelled": {"where": "server", "per_class": 1}}),
        {"labelled": {"where": "clients", "per_class": 1, "streaming": 2}},
    )
    digests = [written(str(i), **change)[0].digest for i, change in enumerate(changes)]
    assert len(set(digests)) == len(changes)


def test_noise_grows_from_client_to_client():
    ids = ["a", "b", "c", "d"]
    found = client_features(FeatureSettings(kind="noise", strength=0.4), ids, seed=0)
    assert {client: entry["sigma"] for client, entry in found.items()} == pytest.approx(
        {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
    )
    grey = np.full((9, 3, 32, 32), 128, dtype=np.uint8)
    images = SkewedImages(grey, np.arange(9), found["a"], seed=5, client="a")
    assert images[:].std() == pytest.approx(25.5, rel=0.02)
    assert images[:].mean() == pytest.approx(128, abs=0.6)
    assert (images[:][4:6] == images[np.array([4, 5])]).all()
    assert (images[0:1] != images[1:2]).any()
    assert (SkewedImages(grey, np.arange(9), found["a"], seed=5, client="b")[:] != images[:]).any()


def test_transforms_differ_between_clients_and_are_the_same_in_every_batch():
    settings = FeatureSettings(kind="transform", strength=1.0)
    found = client_features(settings, ["a", "b"], seed=0)
    assert found["a"] == client_features(settings, ["a", "z"], seed=0)["a"]
    assert found["a"] != found["b"]
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    whole = transformed(images, found["a"])
    assert whole.dtype == np.uint8
    assert whole.shape == images.shape
    for start, stop in ((0, 1), (3, 4), (7, 24), (39, 40)):
        assert (transformed(images[start:stop], found["a"]) == whole[start:stop]).all()
    same = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0, "rotation": 0.0, "blur": 0.0}
    assert abs(transformed(images, same).astype(int) - images).max() <= 2  # hue goes through another colour space
    dark = transformed(images, same | {"brightness": 0.6})
    assert dark.mean() == pytest.approx(images.mean() * 0.6, rel=0.02)
    assert (
        np.diff(transformed(images, same | {"blur": 0.05}).astype(int)).std() < 0.5 * np.diff(images.astype(int)).std()
    )
    turned = transformed(np.rot90(images, axes=(2, 3)).copy(), same | {"rotation": -90.0})
    assert abs(turned.astype(int) - images)[..., 8:24, 8:24].max() <= 3


def test_a_client_trains_on_images_with_its_feature_skew(written, make_run, tiny_data):
    clients, folder = written(features={"kind": "transform", "strength": 1.0})
    context = dataclasses.replace(make_run()[0], clients=str(folder))
    data = load_dataset(tiny_data.dataset)
    for client in clients.ids:
        images, targets = client_data(context, client)
        rows = clients.indices[client]
        assert (targets == data.targets[rows]).all()
        assert (images[:] == transformed(data.images[rows], clients.summary["features"][client])).all()
        assert (images[:] != data.images[rows]).mean() > 0.2
