"""A narrow label-aware network with references, images and targets, for tests of objectives."""

import torch
from torch.nn.functional import normalize

from models.build import new_model
from models.layers.stochastic import use_generator
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from tasks.client.objectives import LocalContext, Reference
from tasks.client.objectives.label_mask.fmman import Settings

CLASSES = 5


def generator(seed=0):
    """Return a generator of a fixed seed."""
    return torch.Generator().manual_seed(seed)


def network(seed, name="fmman", **options):
    """Return a narrow label-aware network with weights of a seed."""
    options = {"layers": 1, "heads": 2, "dropout": 0.0} | options
    settings = ModelSettings(name=name, backbone={"width": 0.125}, fmman=options)
    table = normalize(torch.randn(CLASSES, 64, generator=generator(7)))
    model = new_model(settings, ModelSpec(tuple(f"label {i}" for i in range(CLASSES)), 64, table), seed)
    use_generator(model, generator(seed))
    return model


def reference(seed, multiplicity=1):
    """Return such a network as a frozen reference."""
    return Reference(network(seed).eval().requires_grad_(False), multiplicity)


def data(batch=3):
    """Return images [B, 3, 32, 32] and targets [B, CLASSES]."""
    images = torch.rand(batch, 3, 32, 32, generator=generator(20))
    return images, (torch.rand(batch, CLASSES, generator=generator(21)) < 0.5).to(torch.uint8)


def local_context(model, references=(), own=None, **settings):
    """Return what FMMAN's objective is made from."""
    return LocalContext(model, tuple(references), own, Settings(**settings), generator(5), data()[1])


def gradients(model, loss):
    """Return name -> gradient of the loss."""
    model.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
