"""Feature skew: each client's images are changed in their own way (``partition.features``)."""

from typing import TYPE_CHECKING

import numpy as np

from tasks.core.randomness import numpy_generator
from tasks.data.dataset import LazyImages

if TYPE_CHECKING:
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset


def client_images(dataset: "Dataset", clients: "Clients", client: str, rows: np.ndarray) -> LazyImages:
    """Return rows of the data set with this client's feature skew: its training or test images."""
    parameters = clients.features(client)
    if parameters is None:
        return dataset.lazy_images(rows)
    return SkewedImages(dataset.images, rows, parameters, clients.summary["seed"], client)


def pooled_copies(dataset: "Dataset", clients: "Clients", rows: np.ndarray) -> list[LazyImages]:
    """Return pooled images once per client, with its feature skew, where ``partition.features.test`` is clients."""
    if not clients.skewed_test:
        return []
    return [client_images(dataset, clients, client, rows) for client in clients.ids]


class SkewedImages(LazyImages):
    """Images that are changed on access; an image is the same each time, in any batch.

    Args:
        images: uint8 [N, 3, S, S], mapped from disk.
        rows: int64 [n].
        parameters: ``sigma`` and ``same``, or those of the transform (``tasks.data.partition.feature_skew``).
        seed: Of the partition.
        client: The client.
    """

    def __init__(
        self, images: np.ndarray, rows: np.ndarray, parameters: dict[str, float], seed: int, client: str
    ) -> None:
        super().__init__(images, rows)
        self.parameters, self.seed, self.client = parameters, seed, client

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        """Return the changed images at these places, uint8 [k, 3, S, S]."""
        picked = super().__getitem__(index)
        if not len(picked):
            return picked
        if "sigma" in self.parameters:
            return self._noisy(picked, self.rows[index])
        return transformed(picked, self.parameters)

    def _noisy(self, images: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if not self.parameters["sigma"]:
            return images
        out = np.empty_like(images)
        shape = (1, *images.shape[2:]) if self.parameters.get("same") else images.shape[1:]
        for place, row in enumerate(rows.tolist()):
            rng = numpy_generator(self.seed, f"features/{row}", client=self.client)
            noise = rng.standard_normal(shape, dtype=np.float32) * (255 * self.parameters["sigma"])
            out[place] = np.rint(images[place] + noise).clip(0, 255)
        return out


def transformed(images: np.ndarray, parameters: dict[str, float]) -> np.ndarray:
    """Return a batch uint8 [k, 3, S, S] with changed brightness, contrast, saturation, hue, rotation and blur.

    The border is mirrored before the rotation, so that empty corners do not identify the client.
    """
    import torch
    from torchvision.transforms.v2 import functional

    x = torch.from_numpy(np.ascontiguousarray(images))
    side = x.shape[-1]
    x = functional.adjust_brightness(x, parameters["brightness"])
    x = functional.adjust_contrast(x, parameters["contrast"])
    x = functional.adjust_saturation(x, parameters["saturation"])
    x = functional.adjust_hue(x, parameters["hue"])
    wide = functional.pad(x, [side // 4], padding_mode="reflect")
    rotated = functional.rotate(wide, parameters["rotation"], functional.InterpolationMode.BILINEAR)
    x = functional.center_crop(rotated, [side, side])
    sigma = parameters["blur"] * side
    if sigma >= 0.1:  # below it, the kernel is a single point
        radius = min(max(1, round(3 * sigma)), (side - 1) // 2)
        x = functional.gaussian_blur(x, [2 * radius + 1] * 2, [sigma, sigma])
    return np.asarray(x.numpy())
