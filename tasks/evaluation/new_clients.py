"""Clients that never take part in training, on which the global model is tested (``evaluation.new_clients``)."""

from collections.abc import Sequence

from tasks.core.randomness import numpy_generator


def held_out(ids: Sequence[str], share: float, seed: int) -> list[str]:
    """Return the clients that never take part, sorted: a share of all, at least one, never all; none for a share of 0.

    Args:
        ids: All clients of the partition.
        share: Between 0 and 1.
        seed: The run's seed.
    """
    if not share or len(ids) < 2:
        return []
    count = min(max(round(share * len(ids)), 1), len(ids) - 1)
    rng = numpy_generator(seed, "new clients")
    return sorted(rng.choice(sorted(ids), size=count, replace=False).tolist())
