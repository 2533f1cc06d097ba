"""Which tensors of a network form one layer, from their names."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from models.errors import UserError
from tasks.core.state_schema import Schema

Granularity = Literal["module", "tensor", "block", "model"]
WHOLE, ROOT = "model", "network"  # the layer of everything, and that of parameters that the network itself owns


@dataclass(frozen=True)
class NetworkLayers:
    """Layers and what belongs to them.

    Attributes:
        parameters: Layer -> its trained parameters, sorted; layers in the order of their first parameter's name.
        members: Tensor -> its layer, of parameters and of buffers that have one.
    """

    parameters: Mapping[str, tuple[str, ...]]
    members: Mapping[str, str]


def network_layers(
    schema: Schema, sent: Collection[str], granularity: Granularity, blocks: Sequence[str] = ()
) -> NetworkLayers:
    """Return the layers of a network.

    ``module``: all parameters that one module owns, its weight and its bias; parameters that a module with submodules
    owns itself are a layer of their own. ``block``: the same, but all parameters whose names begin with one of
    ``blocks`` form one layer, the longest that fits. ``tensor``: each parameter. ``model``: all.

    Buffers belong to the layer of their module's parameters, for ``tensor`` to that of the last in name order: the
    weight. Counters, and buffers of modules without parameters, belong to none.

    Args:
        schema: What each tensor is.
        sent: Names of the tensors that updates contain.
        granularity: As above.
        blocks: Prefixes of names.

    Raises:
        UserError: If no parameter's name begins with one of ``blocks``.
    """
    trained = sorted(name for name, spec in schema.items() if spec.kind == "parameter" and name in sent)
    _require_blocks(trained, blocks)
    members = {name: _layer(name, granularity, blocks) for name in trained}
    parameters: dict[str, list[str]] = {}
    for name, layer in members.items():
        parameters.setdefault(layer, []).append(name)
    last = {owner(name): name for name in trained}
    for name in sorted(name for name, spec in schema.items() if spec.kind == "buffer" and name in sent):
        layer = last.get(owner(name), "") if granularity == "tensor" else _layer(name, granularity, blocks)
        if layer in parameters:
            members[name] = layer
    return NetworkLayers({layer: tuple(names) for layer, names in parameters.items()}, members)


def owner(name: str) -> str:
    """Return the path of the module that owns a tensor."""
    return name.rpartition(".")[0] or ROOT


def _layer(name: str, granularity: Granularity, blocks: Sequence[str]) -> str:
    if granularity == "model":
        return WHOLE
    if granularity == "tensor":
        return name
    fitting = [block for block in blocks if name.startswith(block)]
    return max(fitting, key=len) if fitting else owner(name)


def _require_blocks(trained: Sequence[str], blocks: Sequence[str]) -> None:
    for block in blocks:
        if any(name.startswith(block) for name in trained):
            continue
        near = difflib.get_close_matches(block, trained, n=3)
        raise UserError(
            "no trained parameter's name begins with a block",
            where="blocks",
            expected=f"the beginning of one of: {', '.join(dict.fromkeys([*near, *trained]))}",
            found=block,
            hint="state_schema.json in the run's folder lists all tensors",
        )
