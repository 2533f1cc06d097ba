"""Compression to bfloat16: half the bytes of an update."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from models.settings.section import Section
from tasks.core.update_transforms import SentUpdate, Transformed
from tasks.core.update_transforms.compression import Changes, compress, encoding_of

DESCRIPTION = "send the parameters' change in bfloat16: 2 bytes for each"


class Settings(Section):
    """Whether what is lost is sent later."""

    name: Literal["bf16"] = "bf16"
    error_feedback: bool = Field(True, description="Add what was lost to the client's next update.")


def rounded(changes: Changes) -> Changes:
    """Return the changes rounded to 8 significant bits, to nearest, ties to even."""
    return {name: change.bfloat16().float() for name, change in changes.items()}


def apply(settings: Settings, update: SentUpdate) -> Transformed:
    """Return the update with its change in bfloat16; buffers as they are."""
    state, error = compress(update, rounded, settings.error_feedback)
    return Transformed(state, error, replace(encoding_of(update), value_bits=16))
