"""Which images an epoch draws: every one once, or rare labels as often as frequent ones."""

import numpy as np


def balancing_weights(targets: np.ndarray) -> np.ndarray:
    """Return the probability of drawing each image so that rare labels come as often as frequent ones.

    An image's weight is the largest inverse frequency among its labels, 1 / n_c with n_c the client's images of label
    c: the image-level rule of repeat factor sampling (Gupta et al., CVPR 2019, eq 1), without its threshold and root.
    Images without a label are a class of their own. With one label an image, every label that the client has is drawn
    equally often in the mean.

    Args:
        targets: The client's labels, 0/1 [M, C], M at least 1.

    Returns:
        float64 [M], summing to 1.
    """
    columns = np.column_stack([targets != 0, ~targets.any(axis=1)])  # the last one: no label
    counts = columns.sum(axis=0)
    inverse = np.divide(1.0, counts, out=np.zeros(len(counts)), where=counts > 0)
    weights = np.where(columns, inverse, 0.0).max(axis=1)
    return np.asarray(weights / weights.sum())
