"""Cross entropy with label smoothing and class weights, and binary cross entropy with positive weights."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from models.errors import UserError
from tasks.client.objectives import LocalContext, load_objective
from tasks.client.objectives.class_weights import effective_number_weights, inverse_weights, positive_weights

COUNTS = (6, 3, 1)


def one_hot(numbers, classes=3):
    return torch.nn.functional.one_hot(torch.tensor(numbers), classes).to(torch.uint8)


def loss_of(name, targets, logits, client=None, **settings):
    """Return the step's loss for a network whose logits are the pixels."""
    module = load_objective(name)
    chosen = module.Settings(**settings)
    module.check(chosen, "abc")
    step = module.make(
        LocalContext(nn.Identity(), (), None, chosen, torch.Generator(), targets if client is None else client)
    )
    return step(logits, targets)


def test_cross_entropy_by_hand():
    # Softmax of (0, ln 3): 1/4 and 3/4. The images are of class 1 and 0: -(ln 3/4 + ln 1/4) / 2.
    loss = loss_of("ce", one_hot([1, 0], 2), torch.tensor([[0.0, math.log(3)]] * 2))
    assert float(loss.total) == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2)
    total, weight = loss.sums["classification"]
    assert (float(total) / weight, weight) == (pytest.approx(float(loss.total)), 2.0), "the mean per image"


def test_label_smoothing_by_hand():
    # Targets 0.9 and 0.1 after smoothing by 0.2 over two classes.
    loss = loss_of("ce", one_hot([1], 2), torch.tensor([[0.0, math.log(3)]]), label_smoothing=0.2)
    assert float(loss.total) == pytest.approx(-(0.9 * math.log(0.75) + 0.1 * math.log(0.25)))


def test_inverse_weights_are_the_balanced_ones_of_scikit_learn():
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.repeat(np.arange(3), COUNTS)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert inverse_weights(torch.tensor(COUNTS)).tolist() == pytest.approx(expected.tolist())
    assert inverse_weights(torch.tensor([4, 0, 4])).tolist() == pytest.approx([1, 0, 1]), "an absent class weighs 0"


def test_weights_by_effective_number():
    # beta 1/2: E_n = 2 (1 - 2^-n): 1 image 1, 3 images 7/4; weights 1 and 4/7, scaled to mean 1 over the 4 images.
    mean = (1 * 1 + 3 * 4 / 7) / 4
    assert effective_number_weights(torch.tensor([1, 3, 0]), 0.5).tolist() == pytest.approx([1 / mean, 4 / 7 / mean, 0])
    assert effective_number_weights(torch.tensor(COUNTS), 0.0).tolist() == pytest.approx([1, 1, 1]), "neutral"
    near_one = effective_number_weights(torch.tensor(COUNTS), 1 - 1e-7)
    assert near_one.tolist() == pytest.approx(inverse_weights(torch.tensor(COUNTS)).tolist(), rel=1e-4)


@pytest.mark.parametrize("weights", ["inverse", "effective_number", [0.5, 1.0, 2.0]])
def test_the_loss_is_the_weighted_mean_of_the_images(weights):
    targets, logits = one_hot(np.repeat(np.arange(3), COUNTS).tolist()), torch.randn(10, 3)
    w = {
        "inverse": inverse_weights(torch.tensor(COUNTS)),
        "effective_number": effective_number_weights(torch.tensor(COUNTS), 0.999),
    }.get(weights if isinstance(weights, str) else "", torch.tensor([0.5, 1.0, 2.0]))
    each = -(logits.log_softmax(1) * targets).sum(1)
    of_image = (targets * w).sum(1)
    expected = float((each * of_image).sum() / of_image.sum())
    assert float(loss_of("ce", targets, logits, class_weights=weights).total) == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(float(each.mean()), rel=1e-3), "the weights change the loss"


def test_weights_are_those_of_the_client_not_of_the_batch():
    client = one_hot([0, 0, 0, 1, 2, 2])
    logits, batch = torch.randn(2, 3), one_hot([0, 1])
    each = -(logits.log_softmax(1) * batch).sum(1)
    got = float(loss_of("ce", batch, logits, client, class_weights="inverse").total)
    assert got == pytest.approx(float((each[0] / 3 + each[1]) / (1 / 3 + 1)), rel=1e-5)


def test_positive_weights_by_hand():
    targets = torch.tensor([[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]], dtype=torch.uint8)
    assert positive_weights(targets).tolist() == pytest.approx([3, 1, 1 / 3])
    # At logit 0 each label costs ln 2, a present one times its weight.
    loss = loss_of("bce", targets, torch.zeros(4, 3), positive_weights="balanced")
    assert float(loss.total) == pytest.approx(math.log(2) * (3 + 3 * (1 / 3) + 8) / 12)
    listed = loss_of("bce", targets, torch.zeros(4, 3), positive_weights=[2, 2, 2])
    assert float(listed.total) == pytest.approx(math.log(2) * (4 * 2 + 8) / 12)


def test_without_positive_weights_binary_cross_entropy_is_pytorchs_bit_for_bit():
    targets, logits = one_hot([0, 2, 1]), torch.randn(3, 3)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.float())
    assert torch.equal(loss_of("bce", targets, logits).total, expected)


@pytest.mark.parametrize(("name", "key"), [("ce", "class_weights"), ("bce", "positive_weights")])
def test_a_list_needs_one_weight_for_each_class(name, key):
    with pytest.raises(UserError, match=f"(?s)objective.{name}.{key}.*3 numbers.*2"):
        loss_of(name, one_hot([0]), torch.zeros(1, 3), **{key: [1, 2]})
