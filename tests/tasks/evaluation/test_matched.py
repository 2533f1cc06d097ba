"""Test images drawn like a client's training images, and clients that are held out."""

import numpy as np
import pytest

from tasks.evaluation.matched import matched_rows, matched_shares
from tasks.evaluation.new_clients import held_out


def one_hot(*numbers, classes=3):
    return np.eye(classes, dtype=np.uint8)[list(numbers)]


def test_shares_by_hand():
    # Trained on class 0 three times and on class 1 once; two test images of class 0, one of 1, one of 2.
    shares, group = matched_shares(one_hot(0, 0, 1, 0), one_hot(0, 1, 2, 0), "single_label")
    assert shares.tolist() == [0.375, 0.25, 0.0, 0.375]
    assert group[0] == group[3] and len({group[0], group[1], group[2]}) == 3


def test_a_class_without_test_images_is_left_out_but_a_label_set_falls_to_its_nearest():
    tested = one_hot(0, 1)
    assert matched_shares(one_hot(0, 2, 2), tested, "single_label")[0].tolist() == [1.0, 0.0]
    assert not matched_shares(one_hot(2), tested, "single_label")[0].any()
    assert len(matched_rows(one_hot(2), tested, "single_label", np.random.default_rng(0))) == 0
    # {0, 1} is one label from {0} and from {1}, and two from {}.
    both = np.array([[1, 1, 0]], np.uint8)
    assert matched_shares(both, np.vstack([tested, tested[:0]]), "multi_label")[0].tolist() == [0.5, 0.5]
    none = np.array([[0, 0, 0], [1, 0, 0]], np.uint8)
    assert matched_shares(both, none, "multi_label")[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(3))
def test_the_draw_has_the_training_images_label_distribution(seed):
    rng = np.random.default_rng(seed)
    trained = one_hot(*rng.choice(3, 80, p=[0.7, 0.3, 0.0]))
    tested = one_hot(*rng.choice(3, 300))
    rows = matched_rows(trained, tested, "single_label", np.random.default_rng(seed))
    drawn = tested[rows]
    fitting = int(tested[:, :2].sum())
    assert abs(len(rows) - fitting) <= 1, "as many as fit"
    assert drawn.mean(axis=0) == pytest.approx(trained.mean(axis=0), abs=2 / len(rows))
    times = np.bincount(rows, minlength=len(tested))
    for c in range(2):
        of_class = times[tested[:, c] == 1]
        assert of_class.max() - of_class.min() <= 1, "images of a class are drawn equally often, but for one"
    assert (matched_rows(trained, tested, "single_label", np.random.default_rng(seed)) == rows).all()


def test_a_client_that_is_distributed_like_the_test_set_gets_each_image_once():
    tested = one_hot(*([0] * 6 + [1] * 3 + [2] * 3))
    rows = matched_rows(one_hot(0, 0, 1, 2), tested, "single_label", np.random.default_rng(5))
    assert rows.tolist() == list(range(12))


def test_held_out_clients_are_a_share_of_all_at_least_one_never_all():
    ids = [f"c{k:02d}" for k in range(10)]
    held = held_out(ids, 0.3, seed=4)
    assert len(held) == 3 and set(held) < set(ids) and held == sorted(held)
    assert held_out(ids[::-1], 0.3, seed=4) == held, "whatever the order"
    assert held_out(ids, 0.3, seed=5) != held
    assert (held_out(ids, 0.0, 4), len(held_out(ids, 0.01, 4)), len(held_out(ids, 0.99, 4))) == ([], 1, 9)
    assert held_out(["only"], 0.5, 4) == []
