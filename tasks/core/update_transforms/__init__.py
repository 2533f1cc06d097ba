"""What is done to an update between training and aggregation: ordered transforms, at the client and at the server.

A new one is one module with the parts of ``TransformModule`` here and one line in ``TRANSFORMS``
(docs/algorithms/aggregation.md).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from models.errors import UserError
from models.settings.section import Section
from tasks.core.state_schema import Schema
from tasks.core.update_transforms.encoding import Encoding

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TRANSFORMS: dict[str, str] = {
    "bf16": "tasks.core.update_transforms.bf16",
    "clip_norm": "tasks.core.update_transforms.clip_norm",
    "int8": "tasks.core.update_transforms.int8",
    "sign_flip": "tasks.core.update_transforms.sign_flip",
    "topk": "tasks.core.update_transforms.topk",
}


@dataclass(frozen=True)
class SentUpdate:
    """An update on its way to the server, as a transform sees it.

    Attributes:
        client: The client's id.
        state: The trained tensors.
        start: The tensors that training started from.
        schema: What each tensor is.
        generator: For draws; of the run's seed, the round, the stage and the client.
        memory: What this transform kept of the client's last update; empty at first and at the server.
        encoding: How the parameters' change travels after earlier transforms; ``None``: in full.
    """

    client: str
    state: "Mapping[str, Tensor]"
    start: "Mapping[str, Tensor]"
    schema: Schema
    generator: "torch.Generator"
    memory: "Mapping[str, Tensor]" = field(default_factory=dict)
    encoding: Encoding | None = None


@dataclass(frozen=True)
class Transformed:
    """What a transform makes of an update.

    Attributes:
        state: All tensors, changed or not, with their types and shapes.
        memory: What it keeps of this update for the client's next one.
        encoding: How the parameters' change travels now; ``None``: as before.
    """

    state: "dict[str, Tensor]"
    memory: "dict[str, Tensor]" = field(default_factory=dict)
    encoding: Encoding | None = None


class TransformModule(Protocol):
    """The parts of a transform's module; ``check`` is optional and accepts all clients by default.

    ``Settings`` has the field ``name``, a literal: the key in ``TRANSFORMS``.
    """

    DESCRIPTION: str
    Settings: type[Section]

    def apply(self, settings: Any, update: SentUpdate) -> Transformed:
        """Return the transformed update; the given tensors are not changed in place."""
        ...

    def check(self, settings: Any, clients: Collection[str]) -> None:
        """Raise a ValueError if the settings do not fit the clients of the partition."""
        ...


def accept_all(settings: Any, clients: Collection[str]) -> None:
    """Accept all clients: the default of ``check``."""
    del settings, clients


def load_transform(name: str) -> TransformModule:
    """Return the module of a transform."""
    module = import_module(TRANSFORMS[name])
    vars(module).setdefault("check", accept_all)
    return cast("TransformModule", module)


def encoded_bytes(outgoing: Transformed, schema: Schema) -> int:
    """Return the bytes in which transformed tensors travel: compressed parameters, buffers as they are."""
    from tasks.core.store import state_bytes

    if outgoing.encoding is None:
        return state_bytes(outgoing.state)
    return outgoing.encoding.bytes + state_bytes(
        {name: value for name, value in outgoing.state.items() if schema[name].kind != "parameter"}
    )


def transform_update(
    state: "Mapping[str, Tensor]",
    start: "Mapping[str, Tensor]",
    specs: Sequence[Any],
    schema: Schema,
    generator: "torch.Generator",
    client: str = "",
    memory: "Mapping[str, Tensor] | None" = None,
) -> Transformed:
    """Return a client's update after the given transforms, one after the other, and what they keep.

    Args:
        state: The trained tensors.
        start: The tensors that training started from.
        specs: The settings of the transforms.
        schema: What each tensor is.
        generator: For the transforms' draws, which take from it in their order.
        client: The client's id.
        memory: What they kept of the client's last update, ``<position>-<transform>/<name>``, empty at first; ``None``
            where nothing can be kept.

    Raises:
        UserError: If a transform keeps tensors where nothing can be kept.
    """
    kept: dict[str, Tensor] = {}
    out, encoding = dict(state), None
    for position, settings in enumerate(specs):
        prefix = f"{position}-{settings.name}/"
        own = {key.removeprefix(prefix): value for key, value in (memory or {}).items() if key.startswith(prefix)}
        sent = SentUpdate(client, out, start, schema, generator, own, encoding)
        done = load_transform(settings.name).apply(settings, sent)
        if done.memory and memory is None:
            raise UserError(
                f"transform {settings.name} keeps tensors from update to update, which only a client can",
                where="aggregation.server_transforms",
                hint="name it in aggregation.client_transforms",
            )
        out, encoding = done.state, done.encoding or encoding
        kept |= {f"{prefix}{key}": value for key, value in done.memory.items()}
    return Transformed(out, kept, encoding)
