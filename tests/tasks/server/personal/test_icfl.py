"""ICFL's clustering by hand."""

import numpy as np
import pytest

from tasks.server.personal.icfl import (
    agglomerate,
    cohesion,
    connectivity,
    join,
    merge,
    origins,
    recluster,
    split,
)
from tests.support.rounds import make_context

# 0 and 1 are alike, 2 and 3 are alike, the pairs are not; 4 is between them.
S = np.array(
    [
        [1.0, 0.8, 0.0, 0.1, 0.3],
        [0.8, 1.0, -0.1, 0.0, 0.4],
        [0.0, -0.1, 1.0, 0.6, 0.2],
        [0.1, 0.0, 0.6, 1.0, 0.1],
        [0.3, 0.4, 0.2, 0.1, 1.0],
    ]
)


def test_connectivity_is_the_mean_over_pairs():
    assert cohesion(S, [0, 1]) == pytest.approx(0.8)
    assert cohesion(S, [0, 1, 2]) == pytest.approx((0.8 + 0.0 - 0.1) / 3)
    assert cohesion(S, [3]) == 1.0
    assert connectivity(S, [4], [0, 1]) == pytest.approx(0.35)
    assert connectivity(S, [0, 1], [2, 3]) == pytest.approx(0.0)


def test_a_new_client_joins_the_cluster_it_is_most_connected_with_or_opens_one():
    assert join(S, [[0, 1], [2, 3]], [4], theta=0.3) == [[0, 1, 4], [2, 3]]
    assert join(S, [[0, 1], [2, 3]], [4], theta=0.36) == [[0, 1], [2, 3], [4]]
    assert join(S, [[], [2]], [0, 3, 1], theta=0.5) == [[], [2, 3], [0, 1]], "one after the other"


def test_a_loose_cluster_splits_if_both_halves_are_better_connected():
    """The four have (0.8 + 0.6 + 0 + 0.1 - 0.1 + 0) / 6 = 0.233."""
    assert split(S, [[0, 1, 2, 3]], theta=0.24) == [[0, 1], [2, 3]]
    assert split(S, [[0, 1, 2, 3]], theta=0.23) == [[0, 1, 2, 3]]
    assert split(S, [[3, 2], [4], [0, 2]], theta=0.1) == [[3, 2], [4], [0], [2]], "single ones may remain"


def test_a_split_that_improves_nothing_is_left():
    even = np.full((4, 4), 0.05) + 0.95 * np.eye(4)
    assert split(even, [[0, 1, 2, 3]], theta=0.1) == [[0, 1, 2, 3]]


def test_the_best_pairs_merge_first_and_places_stay():
    assert merge(S, [[0], [2], [1], [3]], theta=0.5) == [[0, 1], [2, 3], [], []]
    assert merge(S, [[0], [2], [1], [3]], theta=0.7) == [[0, 1], [2], [], [3]]
    assert merge(S, [[0, 1], [2, 3]], theta=0.0) == [[0, 1, 2, 3], []], "a connectivity equal to theta is enough"
    assert merge(S, [[0, 1]], theta=-1) == [[0, 1]]


def test_agglomeration_by_one_threshold():
    assert agglomerate(S[:4, :4], theta=0.5) == [[0, 1], [2, 3]]
    assert agglomerate(S, theta=0.3) == [[0, 1, 4], [2, 3]]
    assert agglomerate(S, theta=0.9) == [[0], [1], [2], [3], [4]]
    assert agglomerate(S[:1, :1], theta=0.5) == [[0]]


def test_other_orders_of_clients_give_the_same_clusters():
    order = [3, 1, 4, 0, 2]
    turned = S[np.ix_(order, order)]

    def sets(clusters, names):
        return {frozenset(names[row] for row in members) for members in clusters if members}

    same = range(5)
    assert sets(agglomerate(turned, 0.3), order) == sets(agglomerate(S, 0.3), same)
    for theta in (0.05, 0.24):
        ours, theirs = split(turned, [[0, 1, 3, 4]], theta), split(S, [[0, 1, 2, 3]], theta)
        assert sets(ours, order) == sets(theirs, same)


def test_a_cluster_comes_from_that_of_most_of_its_members():
    assert origins([[0, 1, 2], [3], [4]], {0: 1, 1: 2, 2: 2, 3: 0}) == [2, 0, None]
    assert origins([[0, 1]], {0: 5, 1: 4}) == [4], "the first of equals"


@pytest.mark.slow
def test_clients_are_compared_by_their_changes_from_their_own_starts(tiny_data, tmp_path):
    import torch

    context, first = make_context(tiny_data, tmp_path / "run")
    store = context.open_store()
    begun = store.get_state(first)

    def moved(name, base, readout, backbone=0.0):
        state = {key: value.clone() for key, value in base.items()}
        state["readout.bias"][:2] += torch.tensor(readout)
        state["backbone.conv1.weight"].view(-1)[:1] += backbone
        return store.put_state(f"updates/{name}.safetensors", state)

    other = moved("other", begun, [5.0, 5.0])
    last = {
        "a": (moved("a", begun, [1.0, 0.0], backbone=3.0), first),
        "b": (moved("b", store.get_state(other), [1.0, 0.1], backbone=-3.0), other),
        "c": (moved("c", begun, [-1.0, 0.0], backbone=3.0), first),
    }
    known, thetas = {"a": 0, "b": 0, "c": 0}, (0.2, 0.1, 0.2)
    by_head, came = recluster(context, last, known, "two_step", "head", thetas)
    assert by_head == {"a": 0, "b": 0, "c": 1} and came == [0, 0]
    by_all, _ = recluster(context, last, known, "two_step", "all", thetas)
    assert by_all == {"a": 0, "b": 1, "c": 0}
    anew, came = recluster(context, last, {}, "one_threshold", "head", thetas)
    assert anew == {"a": 0, "b": 0, "c": 1} and came == [None, None]
