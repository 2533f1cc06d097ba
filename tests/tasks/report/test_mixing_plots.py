"""Plots of personalised mixing: which layers and rounds are shown, and who helps whom."""

import numpy as np
import pytest
from PIL import Image

from tasks.report.mixing_plots import help_graph, helpers, mixing_heatmaps, spread


def test_helpers_are_the_largest_weights_above_a_plain_mean():
    mean = np.array(
        [
            [0.40, 0.26, 0.25, 0.05, 0.04],
            [0.20, 0.20, 0.20, 0.20, 0.20],  # a plain mean: nobody helps in particular
            [0.21, 0.22, 0.00, 0.23, 0.34],
            [0.00, 0.00, 0.00, 1.00, 0.00],
            [0.90, 0.10, 0.00, 0.00, 0.00],
        ]
    )
    assert helpers(mean) == [(0, 1, 0.26), (0, 2, 0.25), (2, 4, 0.34), (2, 3, 0.23), (2, 1, 0.22), (4, 0, 0.9)]


def test_a_selection_keeps_the_ends():
    assert spread([1, 2, 3], 4) == [1, 2, 3]
    assert spread(list(range(1, 31)), 4) == [1, 11, 20, 30]


@pytest.mark.figures
def test_plots_are_written(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"client-{number}" for number in range(6)]
    layers = [f"layer{number}" for number in range(7)]
    by_round = {number: {layer: rng.dirichlet(np.ones(6), 6) for layer in layers} for number in range(1, 9)}
    mixing_heatmaps(by_round, names, tmp_path / "heat.png")
    help_graph(np.mean([m for one in by_round.values() for m in one.values()], axis=0), names, tmp_path / "help.png")
    for name in ("heat.png", "help.png"):
        assert len(np.unique(np.asarray(Image.open(tmp_path / name).convert("L")))) > 50, name
