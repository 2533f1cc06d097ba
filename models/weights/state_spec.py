"""What a tensor of a network's state is. A network class may declare it: ``STATE_KINDS``, by the end of its name."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TensorSpec:
    """What the server knows of one tensor of the state.

    Attributes:
        kind: ``parameter``: trained by gradients; ``buffer``: a floating statistic; ``counter``: a number of things.
        personal: Each client may have its own, which replaces the global model's.
        nonnegative: A negative value is an error.
    """

    kind: Literal["parameter", "buffer", "counter"] = "buffer"
    personal: bool = False
    nonnegative: bool = False
