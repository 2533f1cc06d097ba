"""Plots of personalised mixing: which layers and rounds are shown, and who helps whom."""

import numpy as np
import pytest
from PIL import Image

from tasks.core.records import RoundRecord
from tasks.core.round_state import RoundState
from tasks.core.store import Store
from tasks.report import mixing_plots as module
from tasks.report.mixing_plots import help_graph, helpers, mixing_heatmaps, spread
from tasks.server.aggregators.mixing import Mixing
from tasks.server.mixing_record import mixing_tensors


def test_helpers_are_the_largest_weights_above_the_mean_of_the_others():
    mean = np.array(
        [
            [0.40, 0.26, 0.25, 0.05, 0.04],
            [0.20, 0.20, 0.20, 0.20, 0.20],  # a plain mean: nobody helps in particular
            [0.21, 0.22, 0.00, 0.23, 0.34],
            [0.00, 0.00, 0.00, 1.00, 0.00],
            [0.90, 0.10, 0.00, 0.00, 0.00],
        ]
    )
    assert helpers(mean) == [(0, 1, 0.26), (0, 2, 0.25), (2, 4, 0.34), (4, 0, 0.9)]


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


def _recorded(store, number, mixing, clients):
    ref = store.put_state(f"rounds/{number}/mixing.safetensors", mixing_tensors(mixing, clients))
    return RoundRecord(round=number, state=RoundState(server={"mixing": ref}), participants=list(clients))


def test_the_mean_is_over_the_rounds_in_which_a_client_got_a_model(tmp_path, monkeypatch):
    store, drawn = Store(tmp_path), {}
    monkeypatch.setattr(module, "help_graph", lambda mean, clients, path: drawn.update(mean=mean, clients=clients))
    monkeypatch.setattr(module, "mixing_heatmaps", lambda by_round, clients, path: drawn.update(shown=by_round))
    layers = {"conv": [[0.5, 0.5], [0.0, 1.0]], "head": [[1.0, 0.0], [0.5, 0.5]]}
    members = {"conv.weight": "conv", "head.weight": "head"}
    first = Mixing(("client/a", "client/c"), layers["conv"], layers, members)
    records = [
        _recorded(store, 1, first, ("a", "c")),
        _recorded(store, 2, Mixing(("client/a",), [[0.25, 0.75]]), ("a", "b")),
        RoundRecord(round=3, state=RoundState(), participants=["a"]),
    ]
    files = module.write_mixing_plots(store, records, tmp_path)
    assert [path.name for path in files.values()] == ["mixing.png", "who-helps-whom.png"]
    assert drawn["clients"] == ["a", "b", "c"] and list(drawn["shown"]) == [1, 2]
    assert {number: list(shown) for number, shown in drawn["shown"].items()} == {1: ["conv", "head"], 2: ["model"]}
    assert drawn["mean"].tolist() == [[0.5, 0.375, 0.125], [0, 1, 0], [0.25, 0, 0.75]]
    assert module.write_mixing_plots(store, records[2:], tmp_path) == {}
