"""CFL's criteria and its split, by hand."""

import numpy as np
import pytest
import torch

from tasks.server.personal.cfl import (
    NORM,
    bipartition,
    gram,
    largest_change,
    mean_norm,
    must_split,
    norms,
    split_cluster,
)
from tests.support.rounds import make_context

# Two pairs that pull apart: (1, 0), (1, 0.1) against (-1, 0), (-1, 0.1)
CHANGES = np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]])
PRODUCTS = CHANGES @ CHANGES.T


def test_norms_by_hand():
    """The mean change is (0, 0.05)."""
    assert mean_norm(PRODUCTS) == pytest.approx(0.05)
    assert norms(PRODUCTS) == pytest.approx([1.0, 1.01**0.5, 1.0, 1.01**0.5])


def test_a_cluster_splits_where_the_mean_stands_still_and_members_do_not():
    assert must_split(PRODUCTS, eps1=0.06, eps2=0.9)
    assert not must_split(PRODUCTS, eps1=0.04, eps2=0.9), "the mean change is above eps1"
    assert not must_split(PRODUCTS, eps1=0.06, eps2=1.1), "no change is above eps2"


def test_relative_bounds_are_shares_of_the_first_and_of_the_mean_norm():
    """eps1 = 0.4 x 2 = 0.8; the largest norm is 1.005, 1.0025 times the mean norm."""
    assert must_split(PRODUCTS, eps1=0.4, eps2=1.002, first=2.0)
    assert not must_split(PRODUCTS, eps1=0.02, eps2=1.002, first=2.0)
    assert not must_split(PRODUCTS, eps1=0.4, eps2=1.003, first=2.0)


def test_the_halves_are_those_that_point_apart():
    assert bipartition(PRODUCTS) == [0, 0, 1, 1]
    order = [2, 0, 3, 1]
    assert bipartition(PRODUCTS[np.ix_(order, order)]) == [0, 1, 0, 1]
    still = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    assert sorted(bipartition(still @ still.T))[0] == 0 and len(set(bipartition(still @ still.T))) == 2


@pytest.mark.slow
def test_models_are_compared_by_their_parameters_changes(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    store, begun = context.open_store(), context.open_store().get_state(start)

    def moved(name, *values):
        state = {key: value.clone() for key, value in begun.items()}
        state["readout.bias"][: len(values)] += torch.tensor(values)
        state["backbone.bn1.running_mean"] += 100.0  # a statistic, which does not count
        return store.put_state(f"updates/{name}.safetensors", state)

    refs = [moved(str(number), *map(float, change)) for number, change in enumerate(CHANGES)]
    assert gram(store, refs, start, ["readout.bias"]) == pytest.approx(PRODUCTS, abs=1e-5)
    assert split_cluster(context, refs, start, (0.06, 0.9, None)) == [0, 0, 1, 1]
    assert split_cluster(context, refs, start, (0.04, 0.9, None)) is None
    first = largest_change(context, refs, start)
    assert float(store.get_state(first)[NORM]) == pytest.approx(1.01**0.5, abs=1e-5)
    assert split_cluster(context, refs, start, (0.06, 1.002, first)) == [0, 0, 1, 1]
