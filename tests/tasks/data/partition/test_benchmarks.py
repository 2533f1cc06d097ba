"""The splits of the classic benchmarks, NIID-Bench and PFLlib, against their rules written down a second time."""

import dataclasses
import math

import numpy as np
import pytest
from pydantic import ValidationError

from tasks.client.feature_skew import SkewedImages, client_images
from tasks.core.round_state import RoundState
from tasks.data.clients import load_clients, partitioned
from tasks.data.dataset import load_dataset
from tasks.data.partition import PartitionSettings, allocations, partition
from tasks.data.partition.divide import divide
from tasks.data.partition.feature_skew import client_features
from tasks.data.partition.settings import ClassesSettings, FeatureSettings
from tasks.data.run_data import load_run_data
from tasks.evaluation.evaluate import evaluate_model
from tests.support.partition_data import in_memory


def ten_classes(train=6000, test=1000):
    """Return a data set with ten equally frequent classes and an official test set."""
    targets = np.eye(10, dtype=np.uint8)[np.arange(train + test) % 10]
    return in_memory(targets, np.where(np.arange(train + test) < train, "train", "test"))


def counts_of(data, found, split="train"):
    """Return images by client and class [K, C]."""
    return np.array([data.targets[rows.chosen(split)].sum(axis=0) for rows in found.rows.values()], dtype=int)


def niid_dirichlet(per_class, shares, clients):
    """NIID-Bench's label skew: a party that holds n/K images gets none of the next class; cut at floored sums."""
    n, held, table = sum(per_class), [0] * clients, []
    for images, drawn in zip(per_class, shares, strict=True):
        left = [share if size < n / clients else 0.0 for share, size in zip(drawn, held, strict=True)]
        edges, total = [0], 0.0
        for share in left[:-1]:
            total += share / sum(left)
            edges.append(int(total * images))
        given = [end - start for start, end in zip(edges, [*edges[1:], images], strict=True)]
        held = [size + more for size, more in zip(held, given, strict=True)]
        table.append(given)
    return np.array(table)


@pytest.mark.parametrize("seed", range(20))
def test_the_balance_rule_is_niid_benchs(monkeypatch, seed):
    shares = np.random.default_rng(seed).dirichlet([0.5] * 10, 10)
    monkeypatch.setattr(allocations, "sample_shares", lambda *_: shares)
    found = allocations.by_label_balanced(np.full(10, 6000), 10, 0.5, np.random.default_rng(0))
    assert abs(found - niid_dirichlet([6000] * 10, shares, 10)).max() <= 1  # ours rounds, theirs cuts off


@pytest.mark.parametrize("seed", range(5))
def test_niid_benchs_dirichlet_split_uses_every_training_image_and_redraws_until_ten(seed):
    data = ten_classes()
    options = PartitionSettings(
        scheme="dirichlet_label", clients=10, alpha=0.5, min_size=10, dirichlet_label={"balance": True}
    )
    found = divide(data, options, seed)
    rows = np.concatenate([part.index for part in found.rows.values()])
    assert np.sort(rows).tolist() == data.indices("train").tolist()
    counts = counts_of(data, found)
    assert counts.sum(axis=0).tolist() == [600] * 10
    assert counts.sum(axis=1).min() >= 10
    assert found.assignment.repair.reassigned == 0
    # a party stops at n/K = 600 images, so beyond it lies at most one class
    assert (counts.sum(axis=1) - counts.max(axis=1)).max() < 600
    assert set(np.concatenate([part.split for part in found.rows.values()]).tolist()) == {"train"}


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_niid_benchs_classes_per_party(classes):
    data = ten_classes()
    options = PartitionSettings(scheme="classes_per_client", clients=10, classes_per_client={"classes": classes})
    counts = counts_of(data, divide(data, options, 3))
    assert ((counts > 0).sum(axis=1) == classes).all()
    assert (counts.diagonal() > 0).all()  # class i mod K
    for column in counts.T:  # cut evenly
        assert np.ptp(column[column > 0]) <= 1
    assert counts.sum(axis=0).tolist() == [600] * 10


def test_the_other_classes_of_a_party_are_equally_likely():
    chosen = sum(allocations.choose_at_random(10, 10, 3, np.random.default_rng(seed)) for seed in range(2000))
    assert chosen.diagonal().tolist() == [2000] * 10
    others = chosen[~np.eye(10, dtype=bool)] / 2000
    assert others == pytest.approx(2 / 9, abs=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_niid_benchs_quantity_skew_and_iid(seed):
    data = ten_classes()
    sizes = counts_of(
        data, divide(data, PartitionSettings(scheme="quantity", clients=10, min_size=10, quantity={"alpha": 0.5}), seed)
    ).sum(axis=1)
    assert sizes.sum() == 6000
    assert sizes.min() >= 10
    assert sizes.max() > 1200  # Dir(0.5) over ten parties
    assert counts_of(data, divide(data, PartitionSettings(scheme="iid", clients=10), seed)).sum(axis=1).tolist() == (
        [600] * 10
    )


def pfllib_owners(clients, classes, per_client):
    """PFLlib's pathological split: each class goes to the first ceil(K / C * classes) clients that lack classes."""
    lacking = dict.fromkeys(range(clients), per_client)
    owners = []
    for _ in range(classes):
        takers = [client for client in lacking if lacking[client]][: math.ceil(clients / classes * per_client)]
        for client in takers:
            lacking[client] -= 1
        owners.append(takers)
    return owners


@pytest.mark.parametrize(("clients", "classes", "per_client"), [(20, 10, 2), (10, 10, 2), (50, 10, 2), (7, 10, 3)])
def test_blocks_of_classes_are_pfllibs(clients, classes, per_client):
    chosen = allocations.choose_in_blocks(clients, classes, per_client)
    assert [np.flatnonzero(column).tolist() for column in chosen.T] == pfllib_owners(clients, classes, per_client)


@pytest.mark.parametrize("seed", range(5))
def test_pfllibs_pathological_split(seed):
    data = ten_classes(6000, 1000)
    options = PartitionSettings(
        scheme="classes_per_client",
        clients=20,
        images="all",
        classes_per_client={"classes": 2, "choice": "blocks", "sizes": "uneven"},
        local={"scheme": "local", "test": 0.25},
        min_size=4,
    )
    found = divide(data, options, seed)
    train, test = counts_of(data, found), counts_of(data, found, "test")
    counts = train + test
    assert counts.sum(axis=0).tolist() == [700] * 10  # train and test pooled
    for label in range(10):
        first = label // 2 * 4  # four clients share two classes
        owners = counts[first : first + 4, label]
        assert owners.sum() == 700
        assert (owners[:3] >= 17).all()  # a tenth of 175, an even share
        assert (owners[:3] < 175).all()
        assert owners[3] >= 175
    assert test.sum(axis=1) / counts.sum(axis=1) == pytest.approx(0.25, abs=0.03)


def test_uneven_sizes_by_hand():
    class Least:
        def integers(self, low, high, count):
            assert (low, high) == (4, 40)  # 120 images of three clients: an even share is 40
            return np.full(count, low)

    assert allocations.uneven_sizes(120, 3, Least()).tolist() == [4, 4, 112]
    assert allocations.uneven_sizes(5, 4, np.random.default_rng(0)).sum() == 5
    assert allocations.uneven_sizes(9, 1, np.random.default_rng(0)).tolist() == [9]


def test_a_class_that_rounding_leaves_without_a_client_is_not_lost():
    # Three clients of two classes: each class has ceil(6 / 10) = 1 owner, so six of ten classes have one.
    options = ClassesSettings(classes=2, choice="blocks", sizes="uneven")
    found = allocations.by_classes(np.full(10, 5), 3, options, np.random.default_rng(0))
    assert (found.sum(axis=1) == 5).all()
    assert (found[:6] > 0).T.tolist() == [[k * 2 <= g < k * 2 + 2 for g in range(6)] for k in range(3)]


ALL = {"images": "all", "local": {"scheme": "local", "val": 0.1, "test": 0.25}}


@pytest.mark.parametrize("scheme", ["iid", "natural"])
def test_with_all_images_the_pooled_test_set_is_the_union_of_the_local_ones(tiny_data, make_run, tmp_path, scheme):
    options = PartitionSettings(scheme=scheme, clients=4 if scheme == "iid" else None, min_size=4, **ALL)
    partition(tiny_data.dataset, options, tmp_path / "clients", seed=1)
    clients, source = load_clients(tmp_path / "clients"), load_dataset(tiny_data.dataset)
    held = np.concatenate([part.index for part in clients.all_rows.values()])
    assert np.sort(held).tolist() == list(range(len(source.targets)))  # every image once, whatever its split was
    assert set(source.splits[held].tolist()) == {"train", "val", "test"}
    context, start = make_run(clients=str(tmp_path / "clients"))
    context = dataclasses.replace(context, data_digest=clients.digest)
    dataset, _ = load_run_data(context)
    for split in ("train", "val", "test"):
        local = np.concatenate([clients.rows(client, split) for client in clients.ids])
        assert np.sort(local).tolist() == dataset.indices(split).tolist()
    assert len(dataset.indices("test")) == pytest.approx(0.25 * len(source.targets), abs=3)
    metrics = evaluate_model(context, RoundState.starting_from(start))["metrics"]
    assert metrics["images"] == len(dataset.indices("test"))
    assert dataset.digest == source.digest


def test_images_of_dropped_sites_are_tested_on():
    sites = ["a"] * 40 + ["b"] * 3
    data = in_memory(np.ones((43, 2)), sites=sites)
    options = PartitionSettings(min_size=5, natural={"small": "drop"}, **ALL)
    found = divide(data, options, 0)
    assert list(found.rows) == ["a"]

    class Stub:
        summary = {"settings": options.model_dump()}  # noqa: RUF012
        all_rows, server = found.rows, found.server

    splits = partitioned(data, Stub()).splits
    assert splits[40:].tolist() == ["test"] * 3
    assert (splits[:40] == "test").sum() == 10


def test_the_first_client_may_stay_clean():
    ids = ["a", "b", "c"]
    found = client_features(FeatureSettings(kind="noise", strength=0.1, clean_first=True), ids, seed=0)
    # NIID-Bench's code: party i from 0 has 0.1 * i / (N - 1)
    assert [found[client]["sigma"] for client in ids] == pytest.approx([0.0, 0.05, 0.1])
    assert client_features(FeatureSettings(kind="noise", clean_first=True), ["a"], 0) == {"a": {"sigma": 0.0}}


def test_noise_of_grey_images_may_leave_them_grey():
    found = client_features(FeatureSettings(kind="noise", strength=0.1, channels="same"), ["a"], 0)
    assert found == {"a": {"sigma": 0.1, "same": 1.0}}
    grey = np.full((9, 3, 28, 28), 128, dtype=np.uint8)
    images = SkewedImages(grey, np.arange(9), found["a"], seed=5, client="a")[:]
    assert (images == images[:, :1]).all()
    assert images.std() == pytest.approx(25.5, rel=0.03)


def test_the_pooled_test_set_is_copied_for_each_client(tiny_data, make_run, tmp_path):
    options = {"scheme": "iid", "clients": 3, "min_size": 4}
    noise = {"kind": "noise", "strength": 0.5, "clean_first": True}
    clients = {}
    for name, test in (("clean", "clean"), ("copies", "clients")):
        settings = PartitionSettings(**options, features=noise | {"test": test})
        partition(tiny_data.dataset, settings, tmp_path / name, seed=1)
        clients[name] = load_clients(tmp_path / name)
    assert clients["clean"].digest != clients["copies"].digest
    found = {}
    for name, held in clients.items():
        context, start = make_run(clients=str(tmp_path / name))
        context = dataclasses.replace(context, data_digest=held.digest)
        found[name] = evaluate_model(context, RoundState.starting_from(start))
    dataset, _ = load_run_data(context)
    rows = dataset.indices("test")
    assert found["copies"]["metrics"]["images"] == 3 * len(rows) == 3 * found["clean"]["metrics"]["images"]
    assert any(key.startswith("interval/") for key in found["clean"]["metrics"])
    assert not any(key.startswith("interval/") for key in found["copies"]["metrics"])
    assert found["copies"]["metrics"]["loss"] != found["clean"]["metrics"]["loss"]
    copies = [client_images(dataset, clients["copies"], client, rows)[:] for client in clients["copies"].ids]
    assert (copies[0] == dataset.images[rows]).all()  # the first client's level is 0
    spread = [float((copy.astype(int) - dataset.images[rows]).std()) for copy in copies]
    assert spread == sorted(spread)
    assert spread[2] > spread[1] > 10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": "all"}, "local.scheme must be local, it is global"),
        ({"images": "all", "local": {"scheme": "matched"}}, "it is matched"),
        ({"features": {"clean_first": True}}, "kind noise"),
        ({"features": {"channels": "same"}}, "kind noise"),
        ({"features": {"kind": "transform", "clean_first": True}}, "kind noise"),
        ({"features": {"test": "clients"}}, "test is clients, but kind is none"),
    ],
)
def test_options_without_sense_are_refused(changes, words):
    with pytest.raises(ValidationError, match=words):
        PartitionSettings(scheme="iid", clients=4, **changes)
