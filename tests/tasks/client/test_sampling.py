"""Balanced sampling: how probable each image is, and what an epoch of such draws holds."""

import numpy as np
import pytest

from tasks.client.batches import batches
from tasks.client.sampling import balancing_weights


def one_hot(labels, classes):
    return np.eye(classes, dtype=np.uint8)[labels]


def test_with_one_label_an_image_every_label_is_equally_probable():
    labels = np.array([0] * 71 + [1] * 24 + [2] * 5)
    weights = balancing_weights(one_hot(labels, 4))  # the client has no image of label 3
    assert [weights[labels == c].sum() for c in range(3)] == pytest.approx([1 / 3] * 3)
    assert weights[0] == pytest.approx(1 / 3 / 71)


def test_with_several_labels_the_rarest_one_decides():
    # Frequencies: label 0 four times, label 1 twice, none once; so 1/4, 1/2 and 1, and the sum is 1/2 + 1 + 1 + ...
    targets = np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 0]], np.uint8)
    expected = np.array([1 / 4, 1 / 4, 1 / 2, 1 / 2, 1])
    assert balancing_weights(targets) == pytest.approx(expected / 2.5)


def test_equally_frequent_labels_are_drawn_alike():
    assert balancing_weights(one_hot([0, 1, 2, 0, 1, 2], 3)) == pytest.approx([1 / 6] * 6)
    assert balancing_weights(np.zeros((3, 2), np.uint8)) == pytest.approx([1 / 3] * 3)


def test_a_balanced_epoch_has_as_many_draws_as_images_and_even_labels():
    labels = np.array([0] * 900 + [1] * 100)
    weights = balancing_weights(one_hot(labels, 2))
    parts = list(batches(1000, 32, np.random.default_rng(5), weights))
    drawn = np.concatenate(parts)
    assert len(drawn) == 1000 and {len(part) for part in parts[:-1]} == {32}
    assert abs((labels[drawn] == 1).mean() - 0.5) < 0.05  # 3 standard deviations
    again = np.concatenate(list(batches(1000, 32, np.random.default_rng(5), weights)))
    assert np.array_equal(drawn, again)


def test_without_weights_the_order_is_a_permutation_from_the_same_numbers():
    order = np.random.default_rng(3).permutation(10)
    assert np.concatenate(list(batches(10, 4, np.random.default_rng(3)))).tolist() == order.tolist()
