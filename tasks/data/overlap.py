"""Which images two data sets have in common, from a short sample of one's ids.

An id is a part of a hash of the image, so ids are as good as random numbers: the smallest ones are a random sample of
the images, and of any other set of images those below the same bound are one, too (bottom-k sketch; Broder 1997).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SIZE = 1024  # ids of a sample; with fewer images than that it is complete


@dataclass(frozen=True)
class Overlap:
    """Images of a set that are in the sampled one, too.

    Attributes:
        images: Their number, estimated unless ``exact``.
        of: Images of the set.
        exact: Whether each image could be looked up.
    """

    images: int
    of: int
    exact: bool


def sample_of(ids: Iterable[str], size: int = SIZE) -> list[str]:
    """Return the smallest ``size`` different ids, sorted."""
    return sorted(set(ids))[:size]


def overlap(sample: Sequence[str], complete: bool, ids: Iterable[str]) -> Overlap:
    """Count the images of a set that another one has, too.

    Args:
        sample: ``sample_of`` the other set.
        complete: Whether these are all its ids.
        ids: The ids of the set.
    """
    known, own = set(sample), set(ids)
    if complete:
        return Overlap(len(known & own), len(own), exact=True)
    looked_up = [name for name in own if name <= max(sample)]
    share = len(known.intersection(looked_up)) / len(looked_up) if looked_up else 0.0
    return Overlap(round(share * len(own)), len(own), exact=len(looked_up) == len(own))
