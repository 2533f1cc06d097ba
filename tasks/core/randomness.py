"""Random numbers by address: every draw comes from a generator named by (seed, purpose, round, stage, client).

The same address gives the same numbers whatever ran before it, on whichever thread, in whichever order,
so a resumed, retried or reordered run equals an undisturbed one. Nothing here touches a global generator.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def address(seed: int, purpose: str, round_: int = 0, stage: int = 0, client: str = "") -> int:
    """A 63-bit integer derived from the address; equal addresses give equal numbers on every machine."""
    text = "\x1f".join((str(int(seed)), purpose, str(int(round_)), str(int(stage)), str(client)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, purpose: str, round_: int = 0, stage: int = 0, client: str = "") -> np.random.Generator:
    """A NumPy generator for one address."""
    return np.random.default_rng(address(seed, purpose, round_, stage, client))


def torch_generator(
    seed: int, purpose: str, round_: int = 0, stage: int = 0, client: str = "", device: str = "cpu"
) -> "torch.Generator":
    """A torch generator on ``device`` for one address."""
    import torch

    return torch.Generator(device=device).manual_seed(address(seed, purpose, round_, stage, client))
