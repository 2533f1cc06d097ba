"""docs/networks.md lists every network with its number of parameters."""

import re
from pathlib import Path

import pytest
import torch

from models.build import build_model
from models.registry import NETWORKS, ModelSpec
from models.settings.model import ModelSettings

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
ROWS = re.findall(r"^\| `(\w+)` \| (\d) x (\d+) x \d+ \| ([\d,]+) \|", PAGE.read_text(), re.MULTILINE)


def test_every_network_has_a_row():
    assert sorted(name for name, *_ in ROWS) == sorted(NETWORKS)


@pytest.mark.parametrize(("name", "channels", "size", "parameters"), ROWS)
def test_the_page_has_the_number_of_parameters(name, channels, size, parameters):
    settings, rows = ModelSettings(name=name, channels=int(channels)), torch.zeros(10, 512)
    spec = ModelSpec(tuple(f"label {i}" for i in range(10)), int(size), rows, rows[:2])
    with torch.device("meta"):
        model = build_model(settings, spec)
    assert f"{sum(p.numel() for p in model.parameters()):,}" == parameters
