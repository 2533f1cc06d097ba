"""Partitions of data with unlabelled images, and hidden labels: who gets which, and what the figures count."""

import dataclasses

import numpy as np
import pytest
from pydantic import ValidationError

from models.errors import UserError
from tasks.data.partition import PartitionSettings
from tasks.data.partition.divide import divide
from tasks.data.partition.labelled_settings import LabelledSettings
from tasks.data.partition.stage import summarise
from tasks.data.statistics.heterogeneity import statistics
from tasks.data.statistics.heterogeneity_table import difference_rows, heads
from tests.support.partition_data import in_memory, random_dataset

SCHEMES = ["iid", "dirichlet", "dirichlet_label", "dirichlet_client", "label_type", "iterative", "shards", "quantity"]


def with_unlabelled(count, known, **more):
    """Return images of three labels, the last ``count - known`` of which nobody has annotated."""
    targets = np.eye(3, dtype=np.uint8)[np.arange(count) % 3]
    targets[known:] = 0
    return dataclasses.replace(in_memory(targets, **more), annotated=np.arange(count) < known)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_unlabelled_images_are_divided_evenly_and_the_others_as_without_them(scheme):
    data = with_unlabelled(340, 300)
    options = PartitionSettings(scheme=scheme, clients=4, min_size=5, alpha=0.3)
    known = dataclasses.replace(in_memory(data.targets[:300], ids=data.sample_ids[:300]))
    plain, found = divide(known, options, 3), divide(data, options, 3)
    for client, rows in found.rows.items():
        assert len(rows.chosen("train", "unlabelled")) == 10
        assert rows.chosen("train", "labelled").tolist() == plain.rows[client].chosen("train", "labelled").tolist()
    everything = np.concatenate([rows.index for rows in found.rows.values()])
    assert np.sort(everything).tolist() == list(range(340))


def test_under_the_scheme_natural_they_stay_at_their_site_which_may_have_no_label():
    sites = np.array(["a"] * 40 + ["b"] * 20)
    found = divide(with_unlabelled(60, 40, sites=sites), PartitionSettings(min_size=16), 0)
    assert {c: len(rows.chosen("train", "unlabelled")) for c, rows in found.rows.items()} == {"a": 0, "b": 20}
    assert len(found.rows["b"].chosen("train", "labelled")) == 0
    assert found.assignment.warnings == [
        "1 of 2 clients have no labelled training image, so they take part only in methods that use unlabelled ones: b"
    ]
    summary = summarise(with_unlabelled(60, 40, sites=sites), PartitionSettings(), found, 0)
    entry = summary["clients"]["b"]
    assert (entry["images"], entry["unlabelled"], entry["labelled"], entry["negatives"]) == (20, 20, 0, 0)
    assert entry["js_distance"] is None and summary["mean_js_distance"] == 0.0


@pytest.mark.parametrize("where", ["clients", "server"])
@pytest.mark.parametrize("balanced", [False, True])
def test_only_annotated_images_are_chosen_as_labelled(where, balanced):
    if where == "server" and balanced:
        return
    data = with_unlabelled(260, 200)
    labelled = {"where": where, "per_class": 3, "balanced": balanced, "streaming": 4}
    found = divide(data, PartitionSettings(scheme="iid", clients=2, min_size=5, labelled=labelled), 1)
    chosen = [rows.chosen("train", "labelled") for rows in found.rows.values()] + [found.server]
    assert all(data.annotated[rows].all() for rows in chosen)
    if where == "clients":
        assert [data.targets[rows].sum(axis=0).tolist() for rows in chosen[:2]] == [[3, 3, 3]] * 2
    pools = [rows.chosen("train", "unlabelled") for rows in found.rows.values()]
    assert sum(map(len, pools)) == 260 - sum(map(len, chosen))
    for rows in found.rows.values():
        sizes = [len(rows.chosen("train", "unlabelled", chunk)) for chunk in range(4)]
        assert max(sizes) - min(sizes) <= 1


def test_local_test_images_are_annotated_and_share_no_group_with_an_unlabelled_one():
    groups = [""] * 300
    for i in range(40):
        groups[i] = groups[260 + i] = f"burst {i}"  # annotated and unlabelled
    data = with_unlabelled(300, 260, groups=groups)
    options = PartitionSettings(scheme="iid", clients=3, min_size=5, local={"scheme": "local", "test": 0.3})
    tested = np.concatenate([rows.chosen("test") for rows in divide(data, options, 1).rows.values()])
    assert data.annotated[tested].all() and not set(tested.tolist()) & set(range(40)) and len(tested) > 50


def test_fedmix_labels_at_clients_are_balanced_and_only_the_pools_are_skewed():
    """Section 3.6: 5 labels per class per client, pools from mixtures Dir(0.1), one for every tenth client."""
    data = in_memory(np.eye(10, dtype=np.uint8)[np.arange(6000) % 10])
    labelled = {"where": "clients", "per_class": 5, "balanced": True, "streaming": 10, "rounds_per_chunk": 15}
    options = PartitionSettings(
        scheme="label_type", clients=20, min_size=1, alpha=0.1, label_type={"types": 10}, labelled=labelled
    )
    found = divide(data, options, 4)
    pools, mixes = [], []
    for rows in found.rows.values():
        assert (data.targets[rows.chosen("train", "labelled")].sum(axis=0) == 5).all()
        pool = rows.chosen("train", "unlabelled")
        pools.append(len(pool))
        mixes.append(data.targets[pool].mean(axis=0))
        assert sorted(np.unique(rows.chunk[rows.pool == "unlabelled"]).tolist()) == list(range(10))
    assert set(pools) == {250}  # exhausted classes are masked and the mixture renormalised: nobody gets fewer
    assert np.mean([mix.max() for mix in mixes]) > 0.4
    first_ten = np.array(mixes[:10])
    assert np.mean([np.abs(mixes[10 + k] - first_ten[k]).sum() for k in range(10)]) < np.mean(
        [np.abs(mixes[10 + k] - first_ten[(k + 5) % 10]).sum() for k in range(10)]
    )


def test_a_class_without_labels_anywhere_and_pools_smaller_than_the_number_of_chunks():
    targets = np.zeros((24, 3), dtype=np.uint8)
    targets[np.arange(24), np.arange(24) % 2] = 1  # label 2 is nowhere
    labelled = {"where": "clients", "per_class": 4, "streaming": 10}
    found = divide(in_memory(targets), PartitionSettings(scheme="iid", clients=2, min_size=5, labelled=labelled), 0)
    for rows in found.rows.values():
        pool = rows.chosen("train", "unlabelled")
        assert 0 < len(pool) < 10 and len(np.unique(rows.chunk[rows.pool == "unlabelled"])) == len(pool)
    everything = {"where": "clients", "per_class": 50}
    whole = divide(in_memory(targets), PartitionSettings(scheme="iid", clients=2, min_size=5, labelled=everything), 0)
    assert all(len(rows.chosen("train", "unlabelled")) == 0 for rows in whole.rows.values())


def test_streaming_needs_unlabelled_images():
    options = PartitionSettings(scheme="iid", clients=2, min_size=5, labelled={"streaming": 3})
    with pytest.raises(UserError, match="streaming needs unlabelled images"):
        divide(random_dataset(60), options, 0)
    found = divide(with_unlabelled(60, 40), options, 0)
    assert {chunk for rows in found.rows.values() for chunk in rows.chunk.tolist()} == {0, 1, 2}
    with pytest.raises(ValidationError, match="rounds_per_chunk"):
        LabelledSettings(where="clients", rounds_per_chunk=3)


def test_numbers_about_labels_leave_out_images_that_nobody_annotated():
    targets = np.array([[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]], np.uint8)
    owners, known = np.array(list("xxxyy")), np.array([1, 1, 1, 0, 0], bool)
    found = statistics(targets, owners, ["x", "y"], ["a", "b"], known)
    assert found["clients"]["x"] == statistics(targets[:3], owners[:3], ["x"], ["a", "b"])["clients"]["x"]
    assert found["clients"]["y"]["unlabelled"] == 2 and found["clients"]["y"]["negatives"] == 0
    assert [(entry["images"], entry["annotated"]) for entry in found["clients"].values()] == [(3, 3), (2, 0)]
    assert heads(found)[:3] == ["images", "unlabelled", "no label"]
    assert [row[:4] for row in difference_rows(found)] == [["x", "3", "0", "1"], ["y", "2", "2", "0"]]
    nobody = statistics(targets, owners, ["x", "y"], ["a", "b"], np.zeros(5, bool))
    assert nobody["mean_js_distance"] is None
    seen = statistics(targets, owners, ["x", "y"], ["a", "b"], None, np.array([0, 1, 0, 0, 1], bool))
    assert [entry["unlabelled"] for entry in seen["clients"].values()] == [1, 1]
    assert heads(statistics(targets, owners, ["x", "y"], ["a", "b"]))[:2] == ["images", "no label"]
