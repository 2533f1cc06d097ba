"""Which tensors form one layer."""

import pytest

from models.errors import UserError
from models.weights.state_spec import TensorSpec
from tasks.server.personal.network_layers import network_layers

PARAMETERS = (
    "cls",
    "a.0.weight",
    "a.0.bias",
    "a.1.weight",
    "a.1.bias",
    "a.10.weight",
    "attn.in_proj",
    "attn.out.weight",
)
SCHEMA = {
    **{name: TensorSpec("parameter") for name in PARAMETERS},
    "a.1.running_mean": TensorSpec("buffer"),
    "a.1.running_var": TensorSpec("buffer", nonnegative=True),
    "a.1.num_batches_tracked": TensorSpec("counter"),
    "plain.running_mean": TensorSpec("buffer"),
    "kept.weight": TensorSpec("parameter"),
}
SENT = SCHEMA.keys() - {"kept.weight"}


def layers(*args):
    found = network_layers(SCHEMA, SENT, *args)
    assert all(layer in found.parameters for layer in found.members.values())
    return {layer: list(names) for layer, names in found.parameters.items()}, found.members


def test_a_module_is_a_layer_and_a_parent_of_modules_has_its_own():
    found, members = layers("module")
    assert found == {
        "a.0": ["a.0.bias", "a.0.weight"],
        "a.1": ["a.1.bias", "a.1.weight"],
        "a.10": ["a.10.weight"],
        "attn": ["attn.in_proj"],
        "attn.out": ["attn.out.weight"],
        "network": ["cls"],
    }
    assert members["a.1.running_var"] == members["a.1.running_mean"] == "a.1"
    assert members.keys().isdisjoint({"a.1.num_batches_tracked", "plain.running_mean", "kept.weight"})


def test_a_tensor_is_a_layer_and_statistics_follow_the_weight():
    found, members = layers("tensor")
    assert found == {name: [name] for name in sorted(PARAMETERS)}
    assert members["a.1.running_mean"] == "a.1.weight" and "plain.running_mean" not in members


def test_blocks_are_prefixes_and_the_longest_wins():
    found, members = layers("block", ("a.", "a.1."))
    assert found["a."] == ["a.0.bias", "a.0.weight", "a.10.weight"] and found["a.1."] == ["a.1.bias", "a.1.weight"]
    assert set(found) == {"a.", "a.1.", "attn", "attn.out", "network"} and members["a.1.running_var"] == "a.1."


def test_the_whole_model_is_one_layer():
    found, members = layers("model")
    assert found == {"model": sorted(PARAMETERS)} and members["plain.running_mean"] == "model"
    assert "a.1.num_batches_tracked" not in members


def test_a_block_that_is_no_part_of_the_network_is_refused():
    with pytest.raises(UserError, match="no trained parameter's name begins with a block") as error:
        layers("block", ("a.", "b."))
    assert "b." in str(error.value) and "attn.in_proj" in str(error.value)
