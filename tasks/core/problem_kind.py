"""The names of the kinds of problem; ``tasks.core.problem`` has what follows from each."""

from typing import Literal

Kind = Literal["multi_label", "single_label"]
KINDS: tuple[Kind, ...] = ("multi_label", "single_label")
