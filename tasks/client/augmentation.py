"""Random changes of training images, drawn for each image and applied to a whole batch (docs/training.md).

The transforms are those of torchvision's ``v2``: RandomCrop, RandomResizedCrop, RandomRotation, RandomVerticalFlip,
ColorJitter and RandomErasing. Its own classes draw from PyTorch's global generator, which clients in concurrent threads
would share, and draw once for a whole batch; so the parameters are drawn here, from the client's generator.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import affine_grid, grid_sample, pad

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from tasks.core.train_settings import AugmentSettings, TrainSettings

_TRIES = 10  # draws of a rectangle before the fallback, as in torchvision
PAD = {"zeros": "constant", "edge": "replicate", "reflect": "reflect"}
_GRID = {"zeros": "zeros", "edge": "border", "reflect": "reflection"}


def augment(images: "Tensor", settings: "TrainSettings", generator: "Generator") -> "Tensor":
    """Return a batch with random changes, drawn for each image; a setting that is off draws nothing.

    Two views of one batch are two calls; a stronger view has its own ``settings.augment``.

    Args:
        images: float32 [B, C, S, S] in 0..1, one or three channels.
        settings: ``flip``, ``shift`` and ``augment`` of the training settings.
        generator: Source of the numbers, on the images' device.
    """
    if settings.flip:
        images = random_flip(images, -1, generator)
    if settings.shift:
        images = random_shift(images, settings.shift, "replicate", generator)
    more = settings.augment
    if more.crop == "pad":
        images = random_shift(images, more.padding, PAD[more.border], generator)
    elif more.crop == "resized":
        images = resized_crop(images, *draw_crops(images, more.scale, more.ratio, generator))
    if more.rotation:
        angles = _uniform(len(images), -more.rotation, more.rotation, images, generator)
        images = rotate(images, angles, _GRID[more.border])
    if more.vertical_flip:
        images = random_flip(images, -2, generator)
    images = _jitter(images, more, generator)
    if more.erasing:
        images = _erase(images, more, generator)
    return images


def _uniform(count: int, low: float, high: float, like: "Tensor", generator: "Generator") -> "Tensor":
    """Draw float32 [count] uniformly from low..high."""
    return low + (high - low) * torch.rand(count, generator=generator, device=like.device)


def random_flip(images: "Tensor", axis: int, generator: "Generator", share: float = 0.5) -> "Tensor":
    """Flip a share of the images [B, C, S, S], at random."""
    flipped = torch.rand(len(images), generator=generator, device=images.device) < share
    return torch.where(flipped[:, None, None, None], images.flip(axis), images)


def random_shift(images: "Tensor", reach: int, mode: str, generator: "Generator") -> "Tensor":
    """Widen the images by ``reach`` pixels as ``pad`` does in this mode; cut out a window of their size at random."""
    size = images.shape[-1]
    wide = pad(images, (reach,) * 4, mode=mode)
    tops = torch.randint(0, 2 * reach + 1, (2, len(images)), generator=generator, device=images.device).tolist()
    return torch.stack([image[:, t : t + size, left : left + size] for image, t, left in zip(wide, *tops, strict=True)])


def _draw_boxes(
    images: "Tensor",
    scale: tuple[float, float],
    ratio: tuple[float, float],
    fits: "Callable[[Tensor, Tensor], Tensor]",
    generator: "Generator",
) -> "tuple[Tensor, Tensor, Tensor]":
    """Draw the sides of a rectangle for each image: its area uniformly, its shape log-uniformly, in whole pixels.

    Args:
        images: [B, C, S, S].
        scale: Smallest and largest area as shares of the image's.
        ratio: Smallest and largest quotient of the first and the second side.
        fits: ``fits(first, second)`` says which of the drawn sides are accepted; the first of ten draws is taken.
        generator: Source of the numbers.

    Returns:
        First and second sides [B] in pixels, and whether one was accepted, bool [B].
    """
    count, side = len(images), images.shape[-1]
    area = side * side * _uniform(_TRIES * count, *scale, images, generator)
    shape = torch.exp(_uniform(_TRIES * count, math.log(ratio[0]), math.log(ratio[1]), images, generator))
    first = torch.sqrt(area * shape).round().view(_TRIES, count)
    second = torch.sqrt(area / shape).round().view(_TRIES, count)
    accepted = fits(first, second)
    chosen = accepted.float().argmax(dim=0, keepdim=True)  # the first that fits
    return first.gather(0, chosen)[0], second.gather(0, chosen)[0], accepted.any(dim=0)


def _place(sides: "Tensor", size: int, generator: "Generator") -> "Tensor":
    """Draw where an interval of ``sides`` pixels [B] begins within ``size``, every whole pixel equally likely."""
    free = size - sides + 1
    drawn = torch.rand(len(sides), generator=generator, device=sides.device)
    return torch.minimum((drawn * free).floor(), free - 1)


def draw_crops(
    images: "Tensor", scale: tuple[float, float], ratio: tuple[float, float], generator: "Generator"
) -> "tuple[Tensor, Tensor, Tensor, Tensor]":
    """Draw a part of each image as RandomResizedCrop does; the centre is the fallback after ten draws.

    Returns:
        top, left, height and width [B] in whole pixels.
    """
    size = images.shape[-1]

    def inside(width: "Tensor", height: "Tensor") -> "Tensor":
        return (width > 0) & (width <= size) & (height > 0) & (height <= size)

    width, height, found = _draw_boxes(images, scale, ratio, inside, generator)
    # Whole image, or its middle in the nearest allowed shape.
    narrow, flat = round(size * min(ratio[1], 1.0)), round(size / max(ratio[0], 1.0))
    width, height = width.where(found, float(narrow)), height.where(found, float(flat))
    top, left = _place(height, size, generator), _place(width, size, generator)
    top, left = top.where(found, (size - flat) // 2), left.where(found, (size - narrow) // 2)
    return top, left, height, width


def resized_crop(images: "Tensor", top: "Tensor", left: "Tensor", height: "Tensor", width: "Tensor") -> "Tensor":
    """Enlarge a part of each image to the image's size, bilinearly; the part is [B] whole pixels each."""
    size = images.shape[-1]
    steps = (torch.arange(size, device=images.device) + 0.5) / size

    def positions(start: "Tensor", side: "Tensor") -> "Tensor":
        """Return where the new pixels' centres are, [B, S] in -1..1; what is beyond the part does not mix in."""
        inside = torch.minimum((steps * side[:, None]).clamp(min=0.5), side[:, None] - 0.5)
        return 2 * (start[:, None] + inside) / size - 1

    y, x = positions(top, height), positions(left, width)
    grid = torch.stack([x[:, None, :].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)], dim=-1)
    return grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def rotate(images: "Tensor", degrees: "Tensor", border: str) -> "Tensor":
    """Rotate each image [B, C, S, S] counter-clockwise about its centre by its angle [B], bilinearly.

    ``border`` is a padding mode of ``grid_sample``: zeros, border or reflection.
    """
    radians = torch.deg2rad(degrees)
    cos, sin, zero = torch.cos(radians), torch.sin(radians), torch.zeros_like(radians)
    # From where an output pixel comes: the inverse rotation, with y pointing down.
    matrix = torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], 1)
    grid = affine_grid(matrix, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode=border, align_corners=False)


def blend(images: "Tensor", other: "Tensor", factors: "Tensor") -> "Tensor":
    """Return factor * image + (1 - factor) * other within 0..1; beyond 1 the image moves away from the other."""
    share = factors[:, None, None, None]
    return (share * images + (1 - share) * other).clamp(0, 1)


def _grey(images: "Tensor") -> "Tensor":
    from torchvision.transforms.v2.functional import rgb_to_grayscale

    return images if images.shape[1] == 1 else rgb_to_grayscale(images, num_output_channels=1)


def adjust_brightness(images: "Tensor", factors: "Tensor") -> "Tensor":
    """Multiply each image by its factor [B]."""
    return blend(images, torch.zeros_like(images), factors)


def adjust_contrast(images: "Tensor", factors: "Tensor") -> "Tensor":
    """Blend each image with its mean grey by its factor [B]."""
    return blend(images, _grey(images).mean(dim=(1, 2, 3), keepdim=True), factors)


def adjust_saturation(images: "Tensor", factors: "Tensor") -> "Tensor":
    """Blend each image with its grey version by its factor [B]; a grey image stays as it is."""
    return images if images.shape[1] == 1 else blend(images, _grey(images), factors)


def adjust_hue(images: "Tensor", shifts: "Tensor") -> "Tensor":
    """Turn the hue in HSV of each image by its share [B] of the colour circle; a grey image stays as it is."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    divisor = chroma.where(chroma > 0, 1.0)
    hue = 4 + (red - green) / divisor  # in sixths of the circle
    hue = (2 + (blue - red) / divisor).where(value == green, hue)
    hue = ((green - blue) / divisor).where(value == red, hue) + 6 * shifts[:, None, None]
    channels = []
    for offset in (5, 3, 1):  # red, green, blue: value minus chroma times a trapezoid of the hue
        position = (offset + hue) % 6
        channels.append(value - chroma * torch.minimum(position, 4 - position).clamp(0, 1))
    return torch.stack(channels, dim=1)


def _jitter(images: "Tensor", settings: "AugmentSettings", generator: "Generator") -> "Tensor":
    """Change brightness, contrast, saturation and hue by factors of each image, in an order drawn for the batch."""
    steps: list[tuple[Callable[[Tensor, Tensor], Tensor], Tensor]] = []
    for change, reach in (
        (adjust_brightness, settings.brightness),
        (adjust_contrast, settings.contrast),
        (adjust_saturation, settings.saturation),
    ):
        if reach:
            steps.append((change, _uniform(len(images), max(0.0, 1 - reach), 1 + reach, images, generator)))
    if settings.hue:
        steps.append((adjust_hue, _uniform(len(images), -settings.hue, settings.hue, images, generator)))
    if not steps:
        return images
    for number in torch.randperm(len(steps), generator=generator, device=images.device).tolist():
        change, values = steps[number]
        images = change(images, values)
    return images


def _erase(images: "Tensor", settings: "AugmentSettings", generator: "Generator") -> "Tensor":
    """Blacken a rectangle in a share of the images, as RandomErasing does; where none of ten fits, none."""
    size = images.shape[-1]
    erased = torch.rand(len(images), generator=generator, device=images.device) < settings.erasing

    def smaller(height: "Tensor", width: "Tensor") -> "Tensor":
        return (height < size) & (width < size)

    height, width, found = _draw_boxes(images, settings.erasing_scale, settings.erasing_ratio, smaller, generator)
    pixels = torch.arange(size, device=images.device)

    def covered(sides: "Tensor") -> "Tensor":
        start = _place(sides, size, generator)[:, None]
        return (pixels >= start) & (pixels < start + sides[:, None])

    rows, columns = covered(height), covered(width)
    mask = rows[:, :, None] & columns[:, None, :] & (erased & found)[:, None, None]
    return images.masked_fill(mask[:, None], 0.0)
