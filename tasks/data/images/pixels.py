"""Converts a decoded image of any allowed mode to 8-bit RGB, and checks what the conversion leaves.

A conversion that leaves one flat colour has misread the file: an unfilled alpha channel, 10-bit values in a 16-bit
file, white on transparency. The colours are used if that is unambiguous, else the image is refused.
"""

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

Gray16 = Literal["full", "bits", "stretch"]
#: Modes that become RGB without a guess; 16-bit grey comes in the byte order of the file.
MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I;16B", "I;16L", "I;16N"})
#: Formats whose mode I is 16-bit grey too; a TIFF's is 32-bit.
WIDE_GREY = frozenset({"PNG", "PPM", "JPEG2000"})
_FLAT, _VISIBLE = 8, 32  # ranges of 8-bit values: at most, no image; at least, certainly one
_NEGLIGIBLE_SHARE = 0.001  # share of pixels that is ignored
_FEW, _MOST = 32, 0.9  # colours of a mask; share of a mask saved as JPEG that three coarse colours fill
_MIN_LEVELS = 17  # fewer grey levels than these are left of 12 bits in a 16-bit file


class FlatError(Exception):
    """A conversion would leave one flat colour, and it is not clear what was meant."""


def to_rgb(image: "Image", background: tuple[int, int, int], gray16: Gray16, repairs: list[str]) -> np.ndarray:
    """Convert the image to uint8 RGB [H, W, 3], stored orientation; add what was done to ``repairs``.

    Raises:
        FlatError: A conversion would leave one flat colour; the text says which, and the setting that helps.
    """
    if image.mode.startswith("I"):
        return _grey(np.asarray(image).astype(np.int32), gray16, repairs)
    if image.mode == "CMYK":
        repairs.append("cmyk")
        pixels = np.asarray(image.convert("RGB"))
        if not _is_not_flat(pixels) and _is_not_flat(np.asarray(image), _VISIBLE):
            raise FlatError("its CMYK values would become one flat colour; save it as RGB")
        return pixels
    if image.has_transparency_data:
        return _composite(image.convert("RGBA"), background, repairs)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def check_depth(pixels: np.ndarray, bits: int) -> None:
    """Refuse colours of more than 8 bits if a decoder kept the upper 8 and these are nearly unused.

    Args:
        pixels: What the decoder gave, uint8.
        bits: Bits of a channel in the file.

    Raises:
        FlatError: The upper bits are nearly unused.
    """
    if bits > 8 and int(pixels.max(initial=0)) < _MIN_LEVELS:
        raise FlatError(f"its {bits}-bit colours use low values only and would be nearly black; save it with 8 bits")


def bit_depth(image: "Image", data: bytes) -> int:
    """Return the bits of a colour channel in the file, if a decoder keeps 8 of them; 8 if unknown."""
    if image.format == "PNG" and image.mode in ("RGB", "RGBA", "LA"):
        return data[24]
    if image.format == "TIFF" and image.mode in ("RGB", "RGBA", "CMYK"):
        bits = getattr(image, "tag_v2", {}).get(258, 8)
        return int(bits[0] if isinstance(bits, tuple) else bits)
    return 8


def only_image(image: "Image", pages: int) -> int | None:
    """Return the one full page of a TIFF whose others are reduced copies or masks; ``None`` if several are full.

    A page says so itself (SubfileType), or is at most half as wide and high as the first, in the same proportion.
    """
    sizes, marked = [], []
    for page in range(pages):
        image.seek(page)
        tags = getattr(image, "tag_v2", {})
        sizes.append(image.size)
        marked.append(bool(int(tags.get(254, 0)) & 0b101) or tags.get(255) == 2)
    whole = [page for page in range(pages) if not marked[page]]
    if len(whole) > 1:
        width, height = sizes[whole[0]]
        whole = [page for page in whole if page == whole[0] or not _smaller(sizes[page], width, height)]
    return whole[0] if len(whole) == 1 else None


def _smaller(size: tuple[int, int], width: int, height: int) -> bool:
    """Check whether a page is a reduced copy of the image of this width and height, its sides rounded."""
    scale = max(size[0] / width, size[1] / height)
    return scale <= 0.5 and abs(size[0] - width * scale) <= 1.5 and abs(size[1] - height * scale) <= 1.5


def few_colours(pixels: np.ndarray) -> str:
    """Say whether an image [H, W, 3] has few colours, as masks do.

    Returns:
        ``exact``: up to 32; ``nearly``: three, coarsely, fill nine tenths of it (a mask saved as JPEG); else "".
    """
    sample = _sample(pixels, 10_000)
    count = sample.shape[0] * sample.shape[1]
    # Every fourth row shows most images to have many: whichever three are most frequent, others are not these.
    some = _coarse_counts(sample[::4])
    if len(some) > _FEW and count - int(some[:-3].sum()) < _MOST * count:
        return ""
    red, green, blue = sample.reshape(-1, 3).astype(np.uint32).T
    if len(np.unique(red << 16 | green << 8 | blue)) <= _FEW:
        return "exact"
    return "nearly" if int(_coarse_counts(sample)[-3:].sum()) >= _MOST * count else ""


def _coarse_counts(pixels: np.ndarray) -> np.ndarray:
    """Count the pixels [H, W, 3] of each colour by the upper four bits of its channels, int64, ascending."""
    red, green, blue = (pixels.reshape(-1, 3) & 0xF0).astype(np.uint16).T
    counts = np.bincount(red << 4 | green | blue >> 4)
    return np.sort(counts[counts > 0])


def _grey(values: np.ndarray, how: Gray16, repairs: list[str]) -> np.ndarray:
    """Convert 16-bit grey [H, W] to RGB. Pillow's own conversion clips at 255 and leaves a white image."""
    least, most = int(values.min(initial=65535)), int(values.max(initial=0))
    if not 0 <= least <= most <= 65535:
        raise FlatError(f"its grey values go from {least} to {most}, beyond 16 bits; save it with 8 or 16 bits")
    white, black = 65535, 0
    if how == "stretch":
        black, white = least, most
    elif how == "bits":
        white = next(2**bits - 1 for bits in (8, 10, 12, 14, 16) if most < 2**bits)
    elif least < most <= 255:
        repairs.append("gray16_low")
        white = 255
    elif least < most and (most - least) // 257 + 1 < _MIN_LEVELS:
        raise FlatError(
            f"its 16-bit values go from {least} to {most} and would be almost flat: set ingest.gray16=bits or stretch"
        )
    if white != 255:
        repairs.append("gray16")
    span = max(white - black, 1)
    grey = (((values - black) * 255 * 2 + span) // (2 * span)).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _composite(layer: "Image", background: tuple[int, int, int], repairs: list[str]) -> np.ndarray:
    """Composite the RGBA image over the background."""
    from PIL import Image

    colours = np.asarray(layer)
    alpha = colours[..., 3]
    pixels = np.asarray(Image.alpha_composite(Image.new("RGBA", layer.size, (*background, 255)), layer).convert("RGB"))
    if alpha.min(initial=255) == 255:
        return pixels
    if not _is_not_flat(pixels):
        unused = np.mean(alpha > _FLAT) <= _NEGLIGIBLE_SHARE or np.ptp(alpha) == 0  # no shape
        if unused and _is_not_flat(colours[..., :3]):
            repairs.append("alpha_unused")
            return np.ascontiguousarray(colours[..., :3])
        if not unused and _is_not_flat(colours, _VISIBLE):
            shown = ", ".join(map(str, background))
            raise FlatError(
                f"over the background it would be one flat colour: set another ingest.background than {shown}"
            )
    repairs.append("alpha")
    return pixels


def _is_not_flat(pixels: np.ndarray, tolerance: int = _FLAT) -> bool:
    """Check whether a notable share of pixels [H, W, C] differs from the median by more than ``tolerance``."""
    usual = np.median(_sample(pixels).reshape(-1, pixels.shape[-1]), axis=0).astype(np.int16)
    low, high = np.clip(usual - tolerance, 0, 255).astype(np.uint8), np.clip(usual + tolerance, 0, 255).astype(np.uint8)
    return bool(((pixels < low) | (pixels > high)).any(axis=-1).mean() > _NEGLIGIBLE_SHARE)


def _sample(pixels: np.ndarray, count: int = 65536) -> np.ndarray:
    """Return about ``count`` pixels, in rows and columns."""
    step = max(1, int((pixels.shape[0] * pixels.shape[1] / count) ** 0.5))
    return pixels[::step, ::step]


def bad_mode(image: "Image") -> str:
    """Return why an image cannot become 8-bit RGB without a guess, "" if it can."""
    bands = getattr(image, "tag_v2", {}).get(277, 1) if image.format == "TIFF" and image.mode.startswith("RGB") else 1
    if bands > 4:
        return f"TIFF of {bands} bands: which of them are the colours is not known; save it with three"
    if image.mode in MODES or (image.mode == "I" and image.format in WIDE_GREY):
        return ""
    kind = {"F": "32-bit floats", "I": "32-bit numbers"}.get(image.mode, f"mode {image.mode}")
    way = "8 or 16 bits, as which value is white is not known" if image.mode in "FI" else "RGB"
    return f"{image.format} of {kind}: convert it to {way}"
