"""Norm clipping: the change of the parameters is scaled down to a largest norm (docs/algorithms/aggregation.md)."""

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.core.update_transforms import SentUpdate, Transformed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

DESCRIPTION = "scale the parameters' change down to a largest norm (McMahan et al., ICLR 2018)"


class Settings(Section):
    """The largest norm of an update."""

    name: Literal["clip_norm"] = "clip_norm"
    max_norm: float = Field(gt=0, description="Largest Euclidean norm of the change of all parameters together.")


def change_norm(state: "Mapping[str, Tensor]", start: "Mapping[str, Tensor]", names: "Sequence[str]") -> float:
    """Return the Euclidean norm of the change of the named tensors together, summed in float64."""
    squares = [float((state[name].double() - start[name].double()).square().sum()) for name in names]
    return math.sqrt(math.fsum(squares))


def apply(settings: Settings, update: SentUpdate) -> Transformed:
    """Return W + (theta - W) min(1, max_norm / |theta - W|) for parameters; buffers, and short updates, as they are."""
    names = [name for name in sorted(update.state) if update.schema[name].kind == "parameter"]
    norm = change_norm(update.state, update.start, names)
    if norm <= settings.max_norm:
        return Transformed(dict(update.state))
    factor, state = settings.max_norm / norm, dict(update.state)
    for name in names:
        begun = update.start[name].double()
        state[name] = (begun + factor * (state[name].double() - begun)).to(state[name].dtype)
    return Transformed(state)
