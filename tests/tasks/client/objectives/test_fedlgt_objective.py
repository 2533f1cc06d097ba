"""Label-mask training (C-Tran) and FedLGT's reference against loops, on narrow networks."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from models.build import new_model
from models.errors import UserError
from models.layers.stochastic import use_generator
from models.registry import NETWORKS, ModelSpec
from models.settings.model import ModelSettings
from tasks.client.objectives import LocalContext, Reference, load_objective
from tasks.client.objectives.label_mask import fedlgt, label_mask_training
from tasks.client.objectives.label_mask.label_states import draw_known_states
from tasks.client.objectives.label_mask.masked_loss import evaluating
from tasks.core.store import state_digest

CLASSES = 6
WITH_STATES = ("fmman", "fedlgt", "ctran")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def network(seed, name="fedlgt"):
    settings = ModelSettings(name=name, backbone={"width": 0.125}, fmman={"layers": 1, "heads": 2, "dropout": 0.0})
    table, words = (normalize(torch.randn(n, 64, generator=generator(n))) for n in (CLASSES, 2))
    problem = ModelSpec(tuple(f"label {i}" for i in range(CLASSES)), 32, table, words)
    model = new_model(settings, problem, seed)
    use_generator(model, generator(seed))
    return model.eval()


def reference(seed, name="fedlgt"):
    return Reference(network(seed, name).requires_grad_(False))


def data(batch=4):
    images = torch.rand(batch, 3, 32, 32, generator=generator(20))
    return images, (torch.rand(batch, CLASSES, generator=generator(21)) < 0.5).to(torch.uint8)


def step_of(module, model, references=(), own=None, **settings):
    return module.make(
        LocalContext(model, tuple(references), own, module.Settings(**settings), generator(5), data()[1])
    )


def restated(model, states):
    """Binary cross entropy of the unknown labels, label by label: (sum, how many)."""
    images, targets = data()
    logits = model.head(model.encode_image(images), states).logits
    pairs = [(n, c) for n in range(len(images)) for c in range(CLASSES) if states[n, c] == -1]
    losses = [binary_cross_entropy_with_logits(logits[n, c], targets[n, c].float()) for n, c in pairs]
    return torch.stack(losses).sum(), len(losses)


def masked_states(entry, eps, images=None):
    """The random states after the reference's mask, image by image and label by label."""
    states = draw_known_states(data()[1], generator(5), 0.75)
    p = torch.sigmoid(entry.model(data()[0]))
    for n in range(len(states) if images is None else images):
        for c in range(CLASSES):
            if 0.5 - eps <= p[n, c].item() <= 0.5 + eps:
                states[n, c] = -1
    return states


@pytest.mark.parametrize("name", WITH_STATES)
@pytest.mark.parametrize(("reduction", "scale"), [("sum", 1), ("mean", 4)])
def test_label_mask_training_sums_the_unknown_labels(name, reduction, scale):
    model = network(1, name)
    out = step_of(label_mask_training, model, loss_reduction=reduction)(*data())
    states = draw_known_states(data()[1], generator(5), 0.75)
    expected, count = restated(model, states)
    assert out.total.item() == pytest.approx(expected.item() / scale, rel=1e-5)
    assert out.sums["classification"][0].item() == pytest.approx(expected.item(), rel=1e-5)
    assert out.sums["classification"][1] == count < 4 * CLASSES
    assert torch.allclose(out.embedding, model.head(model.encode_image(data()[0]), states).z, atol=1e-6)


@pytest.mark.parametrize("name", WITH_STATES)
def test_the_reference_masks_uncertain_labels(name):
    model, entry = network(1, name), reference(5, name)
    out = step_of(fedlgt, model, [entry], eps=0.05)(*data())
    states = masked_states(entry, 0.05)
    random_states = draw_known_states(data()[1], generator(5), 0.75)
    assert (states != random_states).any() and (states != -1).any(), "the case shows nothing"
    expected, count = restated(model, states)
    assert out.total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert out.sums["classification"][1] == count


def test_reference_scope_first_masks_the_first_image_only():
    model, entry = network(1), reference(3)
    out = step_of(fedlgt, model, [entry], eps=0.2, reference_scope="first")(*data())
    expected, count = restated(model, masked_states(entry, 0.2, images=1))
    assert out.total.item() == pytest.approx(expected.item(), rel=1e-5) and out.sums["classification"][1] == count
    assert count < step_of(fedlgt, model, [entry], eps=0.2)(*data()).sums["classification"][1]


def test_the_reference_is_the_assigned_clusters_prototype():
    model, references = network(1), [reference(2), reference(3)]
    alone = [step_of(fedlgt, model, [entry], eps=0.05)(*data()).total for entry in references]
    chosen = [step_of(fedlgt, model, references, own, eps=0.05)(*data()).total for own in (0, 1)]
    assert alone == chosen and alone[0] != alone[1]


def test_a_certain_reference_leaves_label_mask_training():
    model, entry = network(1), reference(3)
    entry.model.readout.bias.add_(20.0)
    assert step_of(fedlgt, model, [entry])(*data()).total == step_of(label_mask_training, model)(*data()).total


def test_without_unknown_labels_the_loss_is_zero_and_gradients_are_finite(monkeypatch):
    monkeypatch.setattr(
        "tasks.client.objectives.label_mask.label_states.draw_known_states", lambda targets, *_: targets.long()
    )
    model = network(1)
    out = step_of(label_mask_training, model)(*data())
    out.total.backward()
    assert out.total == 0.0 and out.sums["classification"][1] == 0.0
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_reference_is_unchanged_and_batchnorm_sees_each_batch_once():
    model, entry = network(1).train(), reference(3)
    before = state_digest(entry.model.state_dict())
    step_of(fedlgt, model, [entry], eps=0.05)(*data()).total.backward()
    assert state_digest(entry.model.state_dict()) == before
    assert {int(v) for n, v in model.state_dict().items() if n.endswith("num_batches_tracked")} == {1}


@pytest.mark.parametrize("name", ["fedlgt", "ctran"])
def test_a_few_steps_lower_the_loss(name):
    model = network(1, name).train()
    optimiser, (images, targets) = torch.optim.Adam(model.parameters(), 3e-3), data(8)
    step = step_of(fedlgt, model, [reference(1, name)], known_share=0.0)  # no known labels: the same task in every step
    losses = []
    for _ in range(15):
        optimiser.zero_grad()
        loss = step(images, targets)
        loss.total.backward()
        optimiser.step()
        losses.append(loss.total.item())
    assert losses[-1] < 0.8 * losses[0]


def test_networks_without_states_are_refused():
    plain = new_model(ModelSettings(name="resnet18", backbone={"width": 0.125}), ModelSpec(("a",), 32), 0)
    for module in (label_mask_training, fedlgt):
        name = "fedlgt" if module is fedlgt else "label_mask_training"
        with pytest.raises(UserError, match=rf"objective {name} needs a network with label states(?s:.)*ctran"):
            step_of(module, plain, [Reference(plain)])


def test_networks_list_their_objectives():
    assert [NETWORKS[name].objectives[0] for name in WITH_STATES] == ["fmman", "fedlgt", "label_mask_training"]
    assert all({"label_mask_training", "fedlgt"} <= set(NETWORKS[name].objectives) for name in WITH_STATES)


def test_which_references_the_objectives_need():
    needed = {name: load_objective(name) for name in ("label_mask_training", "fedlgt")}
    assert {name: module.references_needed(module.Settings()) for name, module in needed.items()} == {
        "label_mask_training": "none",
        "fedlgt": "own_cluster",
    }


def test_evaluating_restores_every_modules_mode():
    model = network(1).train()
    model.backbone.bn1.eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(ZeroDivisionError), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise ZeroDivisionError
    assert [module.training for module in model.modules()] == modes
