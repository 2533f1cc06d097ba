"""Label states: random known subsets, eq 2's uncertainty mask and related labels."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from tasks.client.objectives.label_mask.label_states import (
    draw_known_states,
    mask_uncertain,
    pseudo_states,
    random_states,
    related_labels,
    uncertain,
)

NO_RELATION = torch.zeros((4, 4), dtype=torch.bool)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def angles(*degrees):
    """Unit rows in the plane: the cosine of two labels is that of the angle between them."""
    radians = torch.tensor(degrees).deg2rad()
    return torch.stack([radians.cos(), radians.sin()], dim=1)


def test_a_label_is_uncertain_at_tau_and_not_at_two_eps():
    p = torch.tensor([[0.5, 0.53, 0.47, 0.51, 0.49]])
    assert uncertain(p, 0.5, 0.015).tolist() == [[True, False, False, True, True]]


def test_the_band_is_open():
    # 0.25 and 0.75 are exact in binary, so nothing here depends on rounding.
    assert uncertain(torch.tensor([[0.25, 0.75, 0.2500001, 0.7499999]]), 0.5, 0.25).tolist() == [
        [False, False, True, True]
    ]
    assert not uncertain(torch.tensor([[0.5]]), 0.5, 0.0).any()


def test_fedlgts_band_is_closed():
    p = torch.tensor([[0.25, 0.75, 0.2499999, 0.7500001, 0.5]])
    assert uncertain(p, 0.5, 0.25, "closed").tolist() == [[True, True, False, False, True]]
    assert uncertain(torch.tensor([[0.48, 0.52, 0.4799, 0.5201]]), 0.5, 0.02, "closed").tolist() == [
        [True, True, False, False]
    ]
    assert mask_uncertain(torch.ones(1, 1).long(), torch.tensor([[0.75]]), None, 0.5, 0.25, "closed").item() == -1


def test_every_image_of_the_batch_is_masked_by_its_own_predictions():
    base = torch.tensor([[1, 0, 1, 0]]).repeat(3, 1)
    p = torch.tensor([[0.5, 0.9, 0.1, 0.9], [0.9, 0.1, 0.9, 0.1], [0.9, 0.1, 0.505, 0.495]])
    masked = mask_uncertain(base, p, NO_RELATION, 0.5, 0.015)
    assert masked.tolist() == [[-1, 0, 1, 0], [1, 0, 1, 0], [1, 0, -1, -1]]
    assert base.min() == 0, "the base states must not change in place"


def test_correlated_labels_follow_and_only_in_that_direction():
    related = NO_RELATION.clone()
    related[0, 2] = True  # 2 follows 0; 0 does not follow 2, and what follows 2 does not follow 0
    related[2, 3] = True
    base = torch.tensor([[1, 0, 1, 0]]).repeat(2, 1)
    p = torch.tensor([[0.5, 0.9, 0.9, 0.9], [0.9, 0.9, 0.5, 0.9]])
    assert mask_uncertain(base, p, related, 0.5, 0.015).tolist() == [[-1, 0, -1, 0], [1, 0, -1, -1]]


def test_mask_against_a_loop():
    p, base = torch.rand(20, 7, generator=generator(1)), random_states(torch.zeros(20, 7), generator(2))
    related = torch.rand(7, 7, generator=generator(3)) < 0.3
    expected = base.clone()
    for n in range(20):
        for c in range(7):
            if abs(p[n, c].item() - 0.4) < 0.1:
                expected[n, c] = -1
                for j in range(7):
                    if related[c, j]:
                        expected[n, j] = -1
    assert torch.equal(mask_uncertain(base, p, related, 0.4, 0.1), expected)
    assert (expected == -1).any(dim=1).sum() > 3 and (expected != -1).any()


def test_topk_takes_the_nearest_by_cosine_and_not_itself():
    table = angles(0.0, 10.0, 30.0, 180.0)
    related = related_labels(table, torch.zeros(1, 4), "topk", 2)
    assert related.nonzero().tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1], [3, 1], [3, 2]]
    one = related_labels(table, torch.zeros(1, 4), "topk", 1)
    assert one.nonzero().tolist() == [[0, 1], [1, 0], [2, 1], [3, 2]]


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_topk_with_fewer_labels_than_k_takes_all_others(classes):
    related = related_labels(angles(0.0, 50.0, 70.0)[:classes], torch.zeros(1, classes), "topk", 9)
    assert torch.equal(related, ~torch.eye(classes, dtype=torch.bool))


def test_zscore_against_a_loop():
    table = normalize(torch.randn(6, 4, generator=generator(5)))
    related = related_labels(table, torch.zeros(1, 6), "zscore")
    for c in range(6):
        others = [float(table[c] @ table[j]) for j in range(6) if j != c]
        mean = sum(others) / 5
        bound = mean + math.sqrt(sum((x - mean) ** 2 for x in others) / 5)
        for j in range(6):
            assert bool(related[c, j]) == (j != c and float(table[c] @ table[j]) > bound), (c, j)
    assert related.any()


def test_cooccur_is_the_share_of_the_clients_images():
    # label 0 in 4 images, 1 in 2 of them, 2 in 1 of them and once alone, 3 never
    targets = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]], dtype=torch.uint8)
    related = related_labels(angles(0.0, 1.0, 2.0, 3.0), targets, "cooccur", rho=0.5)
    # P(1|0) = 2/4 reaches 0.5, P(0|1) = 2/2, P(0|2) = 1/2, P(2|0) = 1/4 does not
    assert related.nonzero().tolist() == [[0, 1], [1, 0], [2, 0]]


def test_no_rule_relates_nothing():
    assert not related_labels(angles(0.0, 1.0, 2.0), torch.ones(2, 3), "none").any()


def test_known_labels_keep_the_truth_and_counts_are_uniform():
    targets = (torch.rand(4000, 10, generator=generator(1)) < 0.4).to(torch.uint8)
    states = draw_known_states(targets, generator(2), 0.75)
    known = states != -1
    assert states.dtype == torch.int64
    assert torch.equal(states[known], targets[known].long())
    counts = torch.bincount(known.sum(dim=1), minlength=11)
    assert counts[8:].sum() == 0, "floor(0.75 * 10) = 7 at most"
    # 500 expected of each of 0..7, deviation about 21
    assert (counts[:8] - 500).abs().max() < 90
    # every label is known equally often: 3.5 of 10
    assert (known.float().mean(dim=0) - 0.35).abs().max() < 0.04


def test_known_subsets_differ_between_images_and_follow_the_generator():
    targets = torch.ones(50, 12, dtype=torch.uint8)
    first, again = (draw_known_states(targets, generator(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, draw_known_states(targets, generator(4)))
    assert len(torch.unique(first, dim=0)) > 25


def test_no_share_means_no_known_label():
    assert (draw_known_states(torch.ones(30, 5, dtype=torch.uint8), generator(), 0.0) == -1).all()


def test_pseudo_states_leave_the_band_unknown():
    p = torch.tensor([[0.25, 0.75, 0.24, 0.76, 0.5]])
    assert pseudo_states(p, 0.5, 0.25).tolist() == [[-1, -1, 0, 1, -1]]


def test_random_states_are_zeros_and_ones_that_ignore_the_truth():
    ones = random_states(torch.ones(500, 4), generator(6))
    assert torch.equal(ones, random_states(torch.zeros(500, 4), generator(6)))
    assert set(ones.unique().tolist()) == {0, 1} and abs(ones.float().mean() - 0.5) < 0.06
