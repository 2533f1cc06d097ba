"""Allocations, repair and assignment of partition schemes: hand-derived examples and restated properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tasks.data.partition import allocations
from tasks.data.partition.assignment import (
    RepairCounts,
    assign_images,
    count_allocation,
    draw_until_min_size,
    reassign,
    repair_min_size,
)
from tasks.data.partition.iterative import iterative
from tasks.data.partition.local_test import assign_in_proportion
from tasks.data.partition.settings import (
    ClassesSettings,
    ClusterSettings,
    LabelSetSettings,
    QuantitySettings,
    SemanticSettings,
)
from tasks.data.partition.strata import image_clusters, label_clusters, label_sets, primary_labels


def rng(seed=0):
    return np.random.default_rng(seed)


def test_shares_follow_the_dirichlet_distribution():
    shares = allocations.sample_shares(rng(), 2.0, np.array([1.0, 3.0, 0.0]), 20000)
    # Dir(2, 6): mean 1/4, variance 1/4 * 3/4 / 9; the entry without mass gets none.
    assert shares[:, 0].mean() == pytest.approx(0.25, abs=0.005)
    assert shares[:, 0].var() == pytest.approx(0.1875 / 9, rel=0.05)
    assert (shares[:, 2] == 0).all()
    # Dir(0.01, 0.01): each share is near 0 or 1, each half of the time.
    small = allocations.sample_shares(rng(), 0.01, np.ones(2), 4000)[:, 0]
    assert ((small < 0.01) | (small > 0.99)).mean() > 0.93
    assert (small > 0.5).mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 1.0, 1e11, 1e12, float("inf")])
@pytest.mark.parametrize("clients", [1, 2, 1000])
def test_shares_are_finite_and_sum_to_one_at_every_alpha(alpha, clients):
    shares = allocations.sample_shares(rng(), alpha, np.ones(clients) / clients, 50)
    assert (shares >= 0).all()
    assert shares.sum(axis=1) == pytest.approx(1)
    if alpha > 1e11:
        assert shares == pytest.approx(1 / clients)


def test_rounding_to_integers_by_hand():
    # Sums 0.25 * 10 = 2.5 -> 3 and 0.5 * 10 = 5: 3, 2, 5. Random rounding of 1.5 gives 1 or 2, in the mean 1.5.
    assert allocations.round_to_integers(np.array([10]), np.array([[0.25, 0.25, 0.5]])).tolist() == [[3, 2, 5]]
    offsets = rng().random((4000, 1))
    firsts = allocations.round_to_integers(np.full(4000, 3), np.full((4000, 2), 0.5), offsets)[:, 0]
    assert set(firsts.tolist()) == {1, 2}
    assert firsts.mean() == pytest.approx(1.5, abs=0.03)


@given(hnp.arrays(np.int64, st.integers(1, 6), elements=st.integers(0, 30)), st.integers(1, 9))
def test_round_robin_allocations_differ_by_at_most_one(totals, clients):
    allocation = allocations.round_robin(totals, clients, rng())
    assert (allocation.sum(axis=1) == totals).all()
    assert np.ptp(allocation, axis=1).max() <= 1
    assert np.ptp(allocation.sum(axis=0)) <= 1


def test_client_wise_sampling_continues_when_a_stratum_is_used_up():
    # Both clients want stratum 0 only, which has 2 images: the first gets both and 1 of stratum 1, for which its
    # mixture has no mass left, the second 3 of stratum 1.
    one_sided = np.array([[1.0, 0.0], [1.0, 0.0]])
    allocation = allocations.by_client(np.array([2, 4]), np.array([3, 3]), one_sided, rng())
    assert sorted(allocation.T.tolist()) == [[0, 3], [2, 1]]


def test_used_up_strata_are_masked_and_the_mixture_renormalised():
    # Stratum 0 is all but certain and has 1 image; the other 3 come from 1 (mass 1e-9) and never from 2 (mass 0).
    totals, mixtures = np.array([1, 3, 4]), np.array([[1 - 1e-9, 1e-9, 0.0], [0.0, 0.0, 1.0]])
    allocation = allocations.by_client(totals, np.array([4, 4]), mixtures, rng())
    assert allocation.T.tolist() == [[1, 3, 0], [0, 0, 4]]


def test_client_wise_mixtures_are_met_where_nothing_runs_out():
    totals = np.array([5000, 3000, 2000])
    allocation = allocations.by_client(totals, np.array([5000, 5000]), np.array([[0.5, 0.3, 0.2]] * 2), rng(3))
    assert allocation / 5000 == pytest.approx(np.array([[0.5, 0.3, 0.2]] * 2).T, abs=0.03)


def test_shards_by_hand():
    # 10 images sorted: 4 of stratum 0, 6 of 1. Four runs with edges 0, 2, 5, 7, 10 hold (2,0), (2,1), (0,2), (0,3).
    allocation = allocations.by_shards(np.array([4, 6]), 2, 2, rng())
    runs = [(2, 0), (2, 1), (0, 2), (0, 3)]
    pairs = {tuple(np.add(runs[i], runs[j])) for i in range(4) for j in range(i)}
    assert {tuple(column) for column in allocation.T.tolist()} <= pairs
    assert allocation.sum(axis=1).tolist() == [4, 6]


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 5))
def test_every_client_gets_its_classes(clients, chosen, seed):
    totals = np.array([12, 0, 7, 30, 5, 9])
    allocation = allocations.by_classes(totals, clients, ClassesSettings(classes=chosen), rng(seed))
    assert (allocation.sum(axis=1) == totals).all()
    present = np.flatnonzero(totals)
    assert all(allocation[present[k % 5], k] > 0 for k in range(clients) if clients <= 5)
    if clients * chosen >= 5 and clients >= 5:  # every class is chosen by someone
        assert ((allocation > 0).sum(axis=0) <= chosen).all()


def test_unchosen_classes_go_to_the_smallest_client():
    # One class each of four: clients 0 and 1 own classes 0 and 1; 2 goes to client 1 (2 < 9), and so does 3 (6 < 9).
    assert allocations.by_classes(np.array([9, 2, 4, 5]), 2, ClassesSettings(classes=1), rng()).T.tolist() == [
        [9, 0, 0, 0],
        [0, 2, 4, 5],
    ]


def test_balanced_label_wise_allocation_stops_at_the_equal_share():
    totals = np.full(40, 10)
    for seed in range(20):
        sizes = allocations.by_label_balanced(totals, 4, 0.01, rng(seed)).sum(axis=0)
        assert sizes.sum() == 400
        assert sizes.max() < 100 + 10  # below n/K before its last stratum
    assert allocations.by_label(totals, 4, 0.01, rng(1)).sum(axis=0).max() > 110


def test_quantity_skew_gives_uneven_sizes():
    for kind in ("dirichlet", "lognormal"):
        sizes = allocations.sizes_by_quantity(1000, 10, QuantitySettings(kind=kind, alpha=0.3, sigma=2.0), rng())
        assert sizes.sum() == 1000
        assert sizes.max() > 3 * np.median(sizes)
    equal = allocations.sizes_by_quantity(1000, 10, QuantitySettings(kind="lognormal", sigma=0), rng())
    assert equal.tolist() == [100] * 10


def test_dominant_mixtures_equal_those_of_fedmatch():
    ten = allocations.dominant_mixtures(np.ones(10), 10)
    assert ten[0] == pytest.approx([0.5, 0.15] + [0.2 / 7] * 7 + [0.15])
    assert ten[3] == pytest.approx(np.roll(ten[0], 3))
    for count in (1, 2, 3, 4):
        mixtures = allocations.dominant_mixtures(np.array([1] * count + [0]), 3)
        assert mixtures.sum(axis=1) == pytest.approx(1)
        assert mixtures[0].argmax() == 0
        assert (mixtures[:, count] == 0).all()


def test_repair_prefers_strata_that_the_recipient_already_has():
    # Client 1 needs 3. Client 0 has most of stratum 0, but client 1 has stratum 1, of which there are 2; then 1 more.
    allocation = np.array([[9, 0], [2, 1]])
    assert repair_min_size(allocation, 4).tolist() == [[8, 1], [0, 3]]
    assert allocation.tolist() == [[9, 0], [2, 1]]


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=st.integers(0, 9)), st.data())
def test_repair_reaches_min_size_and_keeps_the_rest(allocation, data):
    min_size = data.draw(st.integers(0, int(allocation.sum()) // allocation.shape[1]))
    fixed = repair_min_size(allocation, min_size)
    assert fixed.min() >= 0
    assert fixed.sum(axis=0).min() >= min_size
    assert (fixed.sum(axis=1) == allocation.sum(axis=1)).all()
    strata = np.repeat(np.arange(allocation.shape[0]), allocation.sum(axis=1))
    owner = assign_images(strata, allocation, rng())
    assert (count_allocation(strata, owner, allocation.shape) == allocation).all()
    reassigned = reassign(strata, owner, fixed)
    assert (count_allocation(strata, reassigned, allocation.shape) == fixed).all()
    assert (reassigned != owner).sum() == abs(fixed - allocation).sum() // 2


def test_resamples_are_bounded_and_counted():
    samples = iter([[[4, 0]], [[3, 1]], [[2, 2]], [[0, 4]]])
    repair = RepairCounts()
    assert draw_until_min_size(lambda: np.array(next(samples)), 2, 5, repair).tolist() == [[2, 2]]
    assert repair == RepairCounts(resamples=2, reassigned=0)
    repair = RepairCounts()
    assert draw_until_min_size(lambda: np.array([[4, 0]]), 2, 3, repair).tolist() == [[2, 2]]
    assert repair == RepairCounts(resamples=3, reassigned=2)


def test_iterative_stratification_by_hand():
    # Images {0}, {0,1}, {1}, {1}, {}; label 0 is to go to client 0, label 1 to client 1; room 2.6 and 2.4.
    # Label 0 (2 images) first: both to client 0, which then has one of label 1 too many (-1 lacking) and room 0.6.
    # Label 1: its two others to client 1, which lacks 3, then 2; room 0.4. The last image goes where room is: client 0.
    targets = np.array([[1, 0], [1, 1], [0, 1], [0, 1], [0, 0]])
    owner = iterative(targets, np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.6, 2.4]), rng())
    assert owner.tolist() == [0, 0, 1, 1, 0]


def test_iterative_stratification_with_equal_shares_is_even():
    targets = rng().random((400, 6)) < np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.6])
    owner = iterative(targets, np.full((6, 4), 0.25), np.full(4, 100.0), rng())
    wanted = targets.sum(axis=0) / 4

    def worst(owners):
        return max(abs(targets[owners == k].sum(axis=0) - wanted).max() for k in range(4))

    assert worst(owner) <= 2
    assert worst(rng(1).permutation(np.arange(400) % 4)) >= 5
    assert np.ptp(np.bincount(owner)) <= 3


def test_assignment_in_proportion_by_hand():
    # Stratum 0 is allocated 3 : 1, stratum 1 by client 1 alone; stratum 2 has no training image: sizes, 3 : 5.
    strata = np.repeat([0, 1, 2], [8, 4, 8])
    owner = assign_in_proportion(strata, np.array([[3, 1], [0, 4], [0, 0]]), rng())
    assert count_allocation(strata, owner, (3, 2)).tolist() == [[6, 2], [0, 4], [3, 5]]


def test_primary_labels_by_hand():
    targets = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 0, 1], [0, 1, 1]])
    train = np.array([1, 1, 1, 1, 1, 0], dtype=bool)  # counts 3, 1, 2
    assert primary_labels(targets, train, "rarest").tolist() == [1, 0, 2, 3, 2, 1]
    assert primary_labels(targets, train, "first").tolist() == [0, 0, 0, 3, 2, 1]


def test_rare_label_sets_join_the_stratum_of_their_rarest_label():
    # Label counts: 7, 5, 1. {0,1} is in 3 images and stays; {0,1,2} is in one and joins label 2, its rarest;
    # {1} is in one and stays as {1}; the image without labels is a stratum of its own.
    sets = np.array([[1, 0, 0]] * 3 + [[1, 1, 0]] * 3 + [[1, 1, 1]] + [[0, 1, 0]] + [[0, 0, 0]])
    train, rule = np.ones(9, dtype=bool), LabelSetSettings()
    assert label_sets(sets, train, 3, rule).tolist() == [1, 1, 1, 2, 2, 2, 4, 3, 0]  # () < (0,) < (0, 1) < (1,) < (2,)
    # With a threshold of 4, {0,1} joins its rarer label 1.
    assert label_sets(sets, train, 4, rule).tolist() == [1, 1, 1, 2, 2, 2, 3, 2, 0]


def test_rare_label_sets_join_the_nearest_frequent_one():
    # Frequent: {0} 5 times, {0,1,2,3} 3 times. {0,1,2}: Hamming 2 and 1; Jaccard 2/3 and 1/4. {3}: Hamming 2 and 3,
    # Jaccard 1 and 3/4. {0,4}: nearest {0} by both.
    sets = np.zeros((11, 5), dtype=int)
    for row, labels in enumerate([[0]] * 5 + [[0, 1, 2, 3]] * 3 + [[0, 1, 2], [3], [0, 4]]):
        sets[row, labels] = 1
    train = np.ones(11, dtype=bool)
    hamming = label_sets(sets, train, 3, LabelSetSettings(merge="hamming"))
    jaccard = label_sets(sets, train, 3, LabelSetSettings(merge="jaccard"))
    assert hamming[8:].tolist() == [hamming[5], hamming[0], hamming[0]]
    assert jaccard[8:].tolist() == [jaccard[5], jaccard[5], jaccard[0]]
    assert len(set(label_sets(sets, train, 1, LabelSetSettings(merge="hamming", cap=1)).tolist())) == 1


def test_clusters_of_labels_and_of_images_are_found():
    kinds = np.repeat([0, 1, 2], 20)
    targets = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]])[kinds]
    images = (
        np.full((60, 3, 12, 12), 10, dtype=np.uint8) + np.array([0, 100, 200], dtype=np.uint8)[kinds, None, None, None]
    )
    train = np.arange(60) % 4 > 0
    for weighting in ("binary", "tfidf"):
        found = label_clusters(targets, train, ClusterSettings(clusters=3, weighting=weighting), seed=1)
        assert len(set(zip(kinds.tolist(), found.tolist(), strict=True))) == 3 == len(set(found.tolist()))
    found = image_clusters(images, train, SemanticSettings(clusters=3), seed=1)
    assert len(set(zip(kinds.tolist(), found.tolist(), strict=True))) == 3 == len(set(found.tolist()))
