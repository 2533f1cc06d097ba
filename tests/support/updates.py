"""Made-up updates in a store, with the schema that the server's tasks read."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from models.weights.state_spec import TensorSpec
from tasks.core.records import ModelRef, Update
from tasks.core.store import Store

SCHEMA = {
    "fc.weight": TensorSpec("parameter"),
    "fc.bias": TensorSpec("parameter"),
    "bn.running_mean": TensorSpec("buffer"),
    "bn.running_var": TensorSpec("buffer", nonnegative=True),
    "bn.num_batches_tracked": TensorSpec("counter"),
}


def make_context(folder: Any, bn_policy: str = "avg", fingerprint: str = "test", schema: Any = None) -> Any:
    """What the server's tasks need of a run's context, with a schema in its store."""
    store = Store(folder)
    store.write_json("state_schema.json", {name: asdict(spec) for name, spec in (schema or SCHEMA).items()})
    return SimpleNamespace(open_store=lambda: Store(folder), fingerprint=fingerprint, bn_policy=bn_policy)


def random_state(seed: int, shape: tuple[int, ...] = (3, 4)) -> dict[str, Tensor]:
    """A state of ``SCHEMA`` with numbers of its own."""
    draws = torch.Generator().manual_seed(seed)
    return {
        "fc.weight": torch.randn(shape, generator=draws),
        "fc.bias": torch.randn(3, generator=draws),
        "bn.running_mean": torch.randn(3, generator=draws),
        "bn.running_var": torch.rand(3, generator=draws) + 0.1,
        "bn.num_batches_tracked": torch.tensor(seed),
    }


def put_update(context: Any, client: str, state: dict[str, Tensor], samples: int = 10, steps: int = 2) -> Update:
    """Store a client's trained state."""
    ref = context.open_store().put_state(f"updates/{client}.safetensors", state)
    return Update(client, ref, samples, steps, {"classification": (1.0, 2.0)}, seconds=0.1)


def put_start(context: Any, state: dict[str, Tensor]) -> ModelRef:
    """Store the model that training started from."""
    return context.open_store().put_state("start.safetensors", state)
