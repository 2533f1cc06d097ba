"""The weights between clients as they are stored beside a round and read back."""

import numpy as np
import pytest
import torch

from models.errors import UserError
from tasks.core.round_state import RoundState
from tasks.core.store import Store
from tasks.server.aggregators.mixing import Mixing, SparseRow
from tasks.server.mixing_record import MixingRecord, mixing_tensors, read_mixing

DENSE = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]
SPARSE = [SparseRow(3, [0, 2], [0.5, 0.5]), SparseRow(3, [1], [1.0])]
OUTPUTS = ("global", "client/a", "client/c")


def stored(folder, mixing, clients=("a", "b", "c")):
    store = Store(folder)
    return store, RoundState(server={"mixing": store.put_state("m.safetensors", mixing_tensors(mixing, clients))})


def test_dense_and_sparse_weights_come_back(tmp_path):
    mean = [1 / 3] * 3
    layers = {"conv": [mean, *DENSE], "head": [mean, *SPARSE]}
    mixing = Mixing(OUTPUTS, [mean, *DENSE], layers, {"conv.weight": "conv", "head.weight": "head"})
    record = read_mixing(*stored(tmp_path, mixing))
    assert (record.models, record.clients, list(record.layers)) == (("a", "c"), ("a", "b", "c"), ["conv", "head"])
    assert record.layers["conv"].tolist() == DENSE and record.layers["head"].tolist() == [[0.5, 0, 0.5], [0, 1, 0]]
    assert mixing_tensors(mixing, ("a", "b", "c"))["weights/1"].numel() == 3  # of the sparse rows only what counts


def test_a_mixing_without_layers_is_of_the_model_and_one_with_prefixes_has_a_rest(tmp_path):
    whole = read_mixing(*stored(tmp_path / "whole", Mixing(OUTPUTS[1:], DENSE)))
    assert list(whole.layers) == ["model"] and whole.layers["model"].tolist() == DENSE
    parts = read_mixing(*stored(tmp_path / "parts", Mixing(OUTPUTS[1:], DENSE, {"backbone.": SPARSE})))
    assert list(parts.layers) == ["other tensors", "backbone."]


def test_models_that_are_no_clients_are_not_recorded():
    assert mixing_tensors(Mixing(("global", "cluster/0"), DENSE), ("a", "b", "c")) == {}


def test_absent_clients_keep_their_own_model_in_a_square():
    record = MixingRecord(("a", "c"), ("a", "b", "c"), {"x": np.array(DENSE, dtype=np.float32)})
    square = record.square(("d", "c", "b", "a"))["x"]
    assert square.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0.25, 0.25, 0.5]]
    with pytest.raises(ValueError, match="missing: b"):
        record.square(("a", "c"))


def test_a_damaged_record_is_refused(tmp_path):
    store = Store(tmp_path)
    for tensors in ({"names": torch.zeros(3, dtype=torch.uint8)}, {"other": torch.zeros(1)}):
        state = RoundState(server={"mixing": store.put_state("m.safetensors", tensors)})
        with pytest.raises(UserError, match="weights between clients are damaged"):
            read_mixing(store, state)
