"""The true labels of unlabelled images: for measurement and for fully supervised references, never for training."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class HiddenLabels:
    """Knows the true labels of U unlabelled images and tells only how many guesses are right.

    Args:
        targets: uint8 [U, C].
        known: bool [U], false for a photograph whose labels nobody knows; it is not counted.
    """

    def __init__(self, targets: np.ndarray, known: np.ndarray) -> None:
        self._targets, self._known = targets, known

    def __len__(self) -> int:
        return len(self._known)

    def score(
        self, rows: "np.ndarray | Tensor", labels: "np.ndarray | Tensor", kept: "np.ndarray | Tensor | None" = None
    ) -> tuple[float, float]:
        """Count right pseudo-labels.

        Args:
            rows: The images, positions in ``LocalData.unlabelled``, int64 [B].
            labels: Their pseudo-labels, 0/1 [B, C].
            kept: Those that count. bool [B], or ``None`` for all: an image is right if all its C entries are; bool
                [B, C]: entries count, as for pseudo-labels per label.

        Returns:
            How many are right, and how many were counted.
        """
        places = _numpy(rows)
        right = _numpy(labels).astype(bool) == self._targets[places].astype(bool)
        known = self._known[places]
        chosen = np.ones(len(places), dtype=bool) if kept is None else _numpy(kept).astype(bool)
        if chosen.ndim == 1:
            right = right.all(axis=1)
        else:
            known = known[:, None]
        counted = chosen & known
        return float((right & counted).sum()), float(counted.sum())

    def subset(self, index: np.ndarray) -> "HiddenLabels":
        """Return those of some of the images."""
        return HiddenLabels(self._targets[index], self._known[index])

    def reveal(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the images whose labels are known, int64 [n], and the labels, uint8 [n, C].

        Only ``LocalData.revealed`` calls it.
        """
        rows = np.flatnonzero(self._known)
        return rows, self._targets[rows]


def nothing_hidden(labels: int) -> HiddenLabels:
    """Return the hidden labels of no image; ``labels`` is C."""
    return HiddenLabels(np.zeros((0, labels), dtype=np.uint8), np.zeros(0, dtype=bool))


def _numpy(values: "np.ndarray | Tensor") -> np.ndarray:
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
