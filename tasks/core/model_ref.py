"""A reference to tensors in the store. References travel, tensors don't."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from tasks.core.record_reading import read_record


@dataclass(frozen=True)
class ModelRef:
    """A set of tensors in the store.

    Attributes:
        uri: Where the safetensors file is, relative to the run's root.
        digest: sha256 over the tensors in name order (name, dtype, shape, bytes).
        bytes: Size of all tensors together, without the file's header.
    """

    uri: str
    digest: str
    bytes: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "ModelRef":
        """Return the record that ``asdict`` was called on."""
        ref: ModelRef = read_record(_ADAPTER, value, "the reference")
        return ref


_ADAPTER: TypeAdapter[ModelRef] = TypeAdapter(ModelRef)
