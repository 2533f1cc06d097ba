"""FMMAN's stage 2: clusters of clients."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from models.errors import UserError
from tasks.core.store import Store
from tasks.server.clustering import cluster_models, cluster_rows, parameter_change, random_clusters, renumber


def planted(seed=0, sizes=(4, 3, 5), width=40):
    """Rows around three far centres, mixed up; returns (rows, planted group of each)."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(sizes), width)) * 10
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return centres[truth] + rng.normal(size=(len(truth), width)) * 0.1, truth


def partition(groups):
    """The groups as sets of members, whatever their numbers."""
    return {frozenset(np.flatnonzero(np.asarray(groups) == g).tolist()) for g in set(np.asarray(groups).tolist())}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_planted_clusters_are_found(seed):
    rows, truth = planted(seed)
    groups = cluster_rows(rows, 3, seed)
    assert partition(groups) == partition(truth)
    assert groups == renumber(groups), "numbered by their smallest member"


def test_clusters_do_not_depend_on_a_common_shift():
    rows, truth = planted(4)
    assert partition(cluster_rows(rows + 3.0, 3, 0)) == partition(truth)


def test_more_clusters_than_clients():
    assert cluster_rows(np.eye(3), 5, 0) == [0, 1, 2]


def test_more_clusters_than_distinct_clients():
    rows = np.array([[0.0, 1.0], [5.0, 5.0], [0.0, 1.0], [5.0, 5.0], [0.0, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cluster_rows(rows, 4, 0) == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("k", [1, 3])
def test_identical_clients_are_one_cluster(k):
    assert cluster_rows(np.full((5, 7), 0.25), k, 0) == [0] * 5
    assert cluster_rows(planted()[0], 1, 0) == [0] * 12


@pytest.mark.parametrize("seed", [0, 3])
def test_permuting_clients_permutes_only_the_numbers(seed):
    # No structure here: only a fixed order of the rows inside makes the result independent of theirs.
    rows = np.random.default_rng(seed).normal(size=(14, 3))
    plain = partition(cluster_rows(rows, 4, seed))
    for attempt in range(10):
        order = np.random.default_rng(100 + attempt).permutation(14)
        permuted = partition(cluster_rows(rows[order], 4, seed))
        assert {frozenset(order[list(members)].tolist()) for members in permuted} == plain


def test_renumber_by_smallest_member_without_gaps():
    assert renumber([7, 2, 7, 0, 2]) == [0, 1, 0, 2, 1]
    assert renumber([]) == []


@pytest.mark.parametrize(("count", "k"), [(10, 3), (2, 5), (4, 4)])
def test_random_clusters_are_nearly_equal_and_depend_on_the_generator(count, k):
    groups = random_clusters(count, k, np.random.default_rng(1))
    sizes = np.bincount(groups)
    assert len(sizes) == min(k, count) and sizes.max() - sizes.min() <= 1
    assert groups == random_clusters(count, k, np.random.default_rng(1)) == renumber(groups)
    assert any(random_clusters(count, k, np.random.default_rng(s)) != groups for s in range(20)) or count <= k


@pytest.fixture
def context(tmp_path):
    return SimpleNamespace(open_store=lambda: Store(tmp_path), fingerprint="test")


def model(first, second, other=0.0, steps=1):
    return {
        "transformer.layers.0.b": torch.tensor(second),
        "transformer.layers.0.a": torch.tensor(first),
        "transformer.layers.0.steps": torch.tensor(steps),
        "transformer.layers.01.a": torch.tensor([other]),
        "readout": torch.tensor([other]),
    }


def test_parameter_change_is_the_layers_change_in_name_order(context):
    store = context.open_store()
    ref = store.put_state("model", model([[1.0, 2.0], [3.0, 4.0]], [5.0], other=9.0, steps=8))
    anchor = store.put_state("anchor", model([[0.5, 0.0], [0.0, 0.0]], [1.0]))
    vector = parameter_change(store, ref, anchor, "transformer.layers.0.")
    assert vector.dtype == np.float64 and vector.tolist() == [0.5, 2.0, 3.0, 4.0, 4.0]


def test_a_prefix_that_matches_nothing_is_an_error(context):
    store = context.open_store()
    ref = store.put_state("model", model([1.0], [2.0]))
    with pytest.raises(UserError, match=r"no parameter to cluster on(?s:.)*transformer\.layers\.0"):
        parameter_change(store, ref, ref, "encoder.")


def test_running_statistics_are_not_clustered_on(context):
    """Clients are clustered on parameters; a prefix such as ``backbone.layer4`` also matches buffers."""
    store = context.open_store()
    state = {"layer4.weight": torch.tensor([2.0])}
    buffers = {"layer4.running_mean": torch.tensor([70.0]), "layer4.running_var": torch.tensor([80.0])}
    ref = store.put_state("model", state | buffers)
    anchor = store.put_state("anchor", {name: value * 0 for name, value in (state | buffers).items()})
    assert parameter_change(store, ref, anchor, "layer4").tolist() == [2.0]


def test_models_are_clustered_by_the_named_layer_alone(context):
    store = context.open_store()
    anchor = store.put_state("anchor", model([0.0, 0.0], [0.0]))
    # By the layer: {0, 2} and {1, 3}. By everything else: {0, 1} and {2, 3}.
    parts = [([9.0, 9.0], 500.0), ([-9.0, 9.0], 500.0), ([9.1, 9.0], -500.0), ([-9.1, 9.0], -500.0)]
    refs = [store.put_state(f"{i}", model(first, [0.0], other)) for i, (first, other) in enumerate(parts)]
    assert cluster_models(context, refs, anchor, "transformer.layers.0.", 2, seed=2**40) == [0, 1, 0, 1]
