"""An update transform that keeps tensors at the client: it sends whole numbers and carries the rest over."""

import sys
from types import ModuleType
from typing import Literal

import torch

from models.settings.section import Section
from tasks.core import update_transforms
from tasks.core.update_transforms import Transformed


class Settings(Section):
    """Which tensor is rounded."""

    name: Literal["carried"] = "carried"
    tensor: str = "fc.bias"


def apply(settings, update):
    """Send floor(tensor + rest) plus a random bit; keep the new rest."""
    want = update.state[settings.tensor] + update.memory.get("rest", 0.0)
    sent = want.floor() + torch.rand(1, generator=update.generator).round()
    return Transformed(dict(update.state) | {settings.tensor: sent}, {"rest": want - sent})


def register(monkeypatch):
    """Make the transform known as `carried` for one test."""
    module = ModuleType("tests.made.carried")
    module.Settings, module.apply = Settings, apply
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(update_transforms.TRANSFORMS, "carried", module.__name__)
