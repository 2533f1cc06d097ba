"""The asymmetric loss and the scenes' entropy: by hand, neutral cases, gradients, what is reported."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tasks.client.objectives import LocalContext, load_objective
from tasks.client.objectives.asl import Settings, asymmetric_loss, make, scene_entropy


def logit(p):
    return math.log(p / (1 - p))


def test_asymmetric_loss_by_hand():
    loss = asymmetric_loss(torch.tensor([[logit(0.25), logit(0.25), logit(0.04)]]), torch.tensor([[1.0, 0.0, 0.0]]))
    # present: (1 - 0.25) * -ln 0.25; absent: p_m = 0.2, 0.2^4 * -ln 0.8; absent below the margin: nothing
    assert loss[0].tolist() == pytest.approx([0.75 * math.log(4), 0.2**4 * -math.log(0.8), 0.0], rel=1e-5)
    below = asymmetric_loss(torch.tensor([[logit(0.04)]]), torch.zeros(1, 1), gamma_neg=0)
    assert below.item() == 0  # the margin alone does that, whatever the exponent


def test_with_exponents_and_margin_zero_it_is_cross_entropy():
    z = torch.linspace(-60, 60, 25).view(5, 5)
    y = (torch.arange(25).view(5, 5) % 2).float()
    plain = binary_cross_entropy_with_logits(z, y, reduction="none")
    assert torch.allclose(asymmetric_loss(z, y, 0, 0, 0), plain, atol=1e-6)


@pytest.mark.parametrize("settings", [(4, 1, 0.05), (4, 1, 0.0), (0.5, 0.5, 0.05), (0.5, 0.5, 0.0), (0, 0, 0.3)])
def test_gradients_are_finite_at_extreme_logits_and_at_the_margin(settings):
    z = torch.tensor([[-200.0, logit(0.05), logit(0.3), 0.0, 200.0]], requires_grad=True)
    for y in (0.0, 1.0):
        loss = asymmetric_loss(z, torch.full_like(z, y), *settings)
        (gradient,) = torch.autograd.grad(loss.sum(), z)
        assert torch.isfinite(loss).all() and torch.isfinite(gradient).all()


def test_the_gradient_goes_through_the_focusing_weights():
    # eq 7 of the paper: dL/dz of an absent label without margin is p (1 - p) (p^4 / (1 - p) - 4 p^3 ln(1 - p))
    p = 0.6
    z = torch.tensor([[logit(p)]], dtype=torch.float64, requires_grad=True)
    asymmetric_loss(z, torch.zeros_like(z), 4, 1, 0.0).sum().backward()
    assert z.grad.item() == pytest.approx(p * (1 - p) * (p**4 / (1 - p) - 4 * p**3 * math.log(1 - p)))


def test_scene_entropy_by_hand():
    # p = (3/4, 1/4) and (1/4, 3/4): mean entropy 2 ln 2 - 3/4 ln 3, mean distribution uniform
    scenes = torch.tensor([[math.log(3), 0.0], [0.0, math.log(3)]])
    assert scene_entropy(scenes).item() == pytest.approx(2 * math.log(2) - 0.75 * math.log(3), rel=1e-5)
    # the same scene twice: its entropy once, and what it lacks to ln 2, together ln 2
    assert scene_entropy(scenes[:1].expand(2, 2)).item() == pytest.approx(math.log(2), rel=1e-5)


def test_scene_entropy_is_minimal_if_each_image_has_one_scene_and_all_are_used():
    sure = 80 * torch.eye(4)
    assert scene_entropy(sure).item() == pytest.approx(0.0, abs=1e-5)
    assert scene_entropy(sure[:1].expand(4, 4)).item() == pytest.approx(math.log(4), rel=1e-5)  # one scene for all
    assert scene_entropy(torch.zeros(4, 4)).item() == pytest.approx(math.log(4), rel=1e-5)  # no scene for any
    assert scene_entropy(torch.randn(3, 1)).item() == pytest.approx(0.0, abs=1e-6)
    far = (1000 * torch.eye(4)).requires_grad_()
    scene_entropy(far).backward()
    assert torch.isfinite(far.grad).all()


class Plain(nn.Module):
    """A classifier: features, then one linear layer."""

    def __init__(self):
        super().__init__()
        self.readout = nn.Linear(12, 3)

    def embed(self, x):
        return x.flatten(1)

    def forward(self, x):
        return self.readout(self.embed(x))


class WithScenes(Plain):
    def scene_forward(self, x, targets):
        self.seen = targets
        return self(x), torch.tensor([[1.0, 0.0], [0.5, 0.5]]), self.embed(x)


def step_of(model, **settings):
    return make(LocalContext(model, (), None, Settings(**settings), torch.Generator(), torch.zeros(2, 3)))


X = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([[1, 0, 1], [0, 0, 1]], dtype=torch.uint8)


@pytest.mark.parametrize("loss", ["asl", "bce"])
def test_a_plain_classifier_has_the_loss_without_scenes(loss):
    model = Plain()
    out = step_of(model, loss=loss)(X, Y)
    expected = {
        "asl": asymmetric_loss(model(X), Y.float()).sum(),
        "bce": binary_cross_entropy_with_logits(model(X), Y.float(), reduction="sum"),
    }[loss]
    assert torch.allclose(out.total, expected) and out.sums.keys() == {"classification"}
    total, weight = out.sums["classification"]
    assert weight == 6 and float(total) / weight == pytest.approx(expected.item() / 6)  # reported is a mean per label
    assert torch.equal(out.embedding, X.flatten(1))


def test_a_network_with_scenes_gets_the_targets_and_adds_the_scene_term():
    model = WithScenes()
    out = step_of(model, scene_weight=0.5)(X, Y)
    entropy = scene_entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    assert model.seen is Y
    assert torch.allclose(out.total, asymmetric_loss(model(X), Y.float()).sum() + 0.5 * entropy)
    total, weight = out.sums["scenes"]
    assert weight == 2 and float(total) / weight == pytest.approx(entropy.item())
    assert not any(pair[0].requires_grad for pair in out.sums.values() if isinstance(pair[0], torch.Tensor))


def test_asl_needs_no_references():
    module = load_objective("asl")
    assert module.make is make and module.references_needed(Settings()) == "none"
