"""Seed derivation: every generator is derived from the key (seed, purpose, round, stage, client).

The same key gives the same numbers whatever ran before it, on whichever thread, in whichever order,
so a resumed, retried or reordered run equals an undisturbed one. Nothing here touches a global generator.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, purpose: str, round_: int = 0, stage: int = 0, client: str = "") -> int:
    """Return a 63-bit seed derived from the key; equal keys give equal seeds on every machine."""
    text = "\x1f".join((str(int(seed)), purpose, str(int(round_)), str(int(stage)), str(client)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, purpose: str, round_: int = 0, stage: int = 0, client: str = "") -> np.random.Generator:
    """Return a NumPy generator for one key."""
    return np.random.default_rng(derive_seed(seed, purpose, round_, stage, client))


def torch_generator(
    seed: int, purpose: str, round_: int = 0, stage: int = 0, client: str = "", device: str = "cpu"
) -> "torch.Generator":
    """Return a torch generator on ``device`` for one key."""
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(seed, purpose, round_, stage, client))
