"""What each tensor of a network is, by the network itself."""

from typing import ClassVar

import pytest
from torch import nn

from models.errors import UserError
from models.weights.state_spec import TensorSpec
from tasks.core.network import build_network, split_state
from tasks.core.state_schema import parameters_of, read_schema, schema_of, spec_of
from tests.support.rounds import NARROW


class Net(nn.Module):
    STATE_KINDS: ClassVar = {
        "own.weight": TensorSpec("parameter", personal=True),
        "weight": TensorSpec("parameter", nonnegative=True),
    }

    def __init__(self):
        super().__init__()
        self.own = nn.Linear(2, 2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)
        self.norm = nn.BatchNorm1d(2)
        self.late = nn.InstanceNorm1d(2, track_running_stats=True)


def test_parameters_buffers_counters_and_what_the_network_declares():
    assert schema_of(Net()) == {
        "own.weight": TensorSpec("parameter", personal=True),
        "own.bias": TensorSpec("parameter"),
        "norm.weight": TensorSpec("parameter", nonnegative=True),
        "norm.bias": TensorSpec("parameter"),
        **{
            f"{norm}.{name}": spec
            for norm in ("norm", "late")
            for name, spec in {
                "running_mean": TensorSpec("buffer"),
                "running_var": TensorSpec("buffer", nonnegative=True),
                "num_batches_tracked": TensorSpec("counter"),
            }.items()
        },
    }
    assert schema_of(nn.BatchNorm1d(2))["running_var"].nonnegative


def test_the_schema_lies_beside_the_initial_model_and_covers_it(make_run):
    context, start = make_run(objective="bce", network=NARROW)
    store, network = context.open_store(), build_network(context, context.open_store())
    schema = read_schema(context)
    assert schema == schema_of(network) and schema.keys() == store.get_state(start).keys()
    assert schema.keys() == split_state(network, "avg")[0].keys()
    assert parameters_of(schema) == sorted(name for name, p in network.named_parameters() if p.requires_grad)
    store.delete("state_schema.json")  # as a run of an earlier release
    assert read_schema(context) == schema and store.exists("state_schema.json")
    store.write_json("state_schema.json", {"w": {"kind": "parameter", "colour": 1}})
    with pytest.raises(UserError, match="schema is damaged"):
        read_schema(context)


def test_xuesgcns_scenes_are_personal(make_run):
    network = {"name": "xuesgcn", "backbone": {"width": 0.125}, "xuesgcn": {"scenes": 2}}
    context, _ = make_run(objective="asl", network=network)
    schema = read_schema(context)
    assert {name for name, spec in schema.items() if spec.personal} == {
        "scene_head.weight",
        "co_occurrence",
        "scene_counts",
    }
    assert schema["co_occurrence"] == schema["scene_counts"] == TensorSpec("counter", True, True)
    assert "scene_head.weight" in parameters_of(schema)


def test_an_unknown_tensor_is_an_error():
    with pytest.raises(UserError, match="no such tensor"):
        spec_of({}, "w")
    assert spec_of({"w": TensorSpec("counter")}, "w").kind == "counter"
