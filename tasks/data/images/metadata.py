"""Metadata of image files: removing it, and the EXIF orientation.

Decoders read metadata too, and damage there makes them fail although every pixel is intact. The functions here keep
what the pixels need; whether these are complete is still decided by the decoder.
"""

import re
import struct
import zlib
from collections.abc import Callable

import numpy as np

ORIENTATION_TAG = 0x0112  # of EXIF
SIDE_SWAPPING = (5, 6, 7, 8)  # orientations that swap width and height
#: EXIF orientation -> how the stored pixels [H, W, 3] become upright.
UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: stored.transpose(1, 0, 2)[:, ::-1],
    7: lambda stored: stored.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda stored: stored.transpose(1, 0, 2)[::-1],
}
#: TIFF tags that pixels depend on; all others (names, dates, EXIF, XMP, profiles) are metadata.
_TIFF_TAGS = frozenset(
    {254, 255, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 290, 291, 292, 293, 317, 320, 322, 323, 324, 325}
    | {332, 338, 339, 340, 341, 347, 512, 513, 514, 515, 517, 518, 519, 520, 521, 529, 530, 531, 532}
)
_INTEGERS = {1: "B", 3: "H", 4: "I"}  # struct codes of EXIF's integer types
_JFIF, _EXIF, _ADOBE, _COMMENT, _SCAN = 0xE0, 0xE1, 0xEE, 0xFE, 0xDA  # JPEG markers
_PNG, _PNG_KEPT = b"\x89PNG\r\n\x1a\n", (b"IHDR", b"PLTE", b"tRNS", b"acTL", b"fcTL", b"fdAT", b"IDAT", b"IEND")
_WEBP_KEPT, _WEBP_METADATA = (b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"), 0x2C  # flags of ICC, EXIF, XMP


def without_metadata(data: bytes) -> tuple[bytes, int] | None:
    """Return the file with its pixels only, and its EXIF orientation (1 if that cannot be read).

    Args:
        data: A JPEG, PNG, WebP or TIFF file, damaged in any way.

    Returns:
        ``None`` for other formats, and if the file's structure itself is damaged.
    """
    try:
        if data[:3] == b"\xff\xd8\xff":
            return _jpeg(data)
        if data.startswith(_PNG):
            return _png(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        if data[:4] in (b"II*\0", b"MM\0*"):
            return _tiff(data)
    except (struct.error, IndexError):
        pass
    return None


def exif_orientation(block: bytes) -> int:
    """Return the orientation in an EXIF block, 1 to 8; 1 if none can be read."""
    found = re.search(rb"II\*\0|MM\0\*", block[:64])
    if found is None:
        return 1
    block = block[found.start() :]
    order = "<" if block[:2] == b"II" else ">"
    try:
        (start,) = struct.unpack_from(f"{order}I", block, 4)
        (count,) = struct.unpack_from(f"{order}H", block, start)
        for number in range(count):
            tag, kind, _ = struct.unpack_from(f"{order}HHI", block, start + 2 + 12 * number)
            if tag == ORIENTATION_TAG and kind in _INTEGERS:
                (value,) = struct.unpack_from(f"{order}{_INTEGERS[kind]}", block, start + 10 + 12 * number)
                return normalize_orientation(value)
    except struct.error:
        pass
    return 1


def normalize_orientation(value: object) -> int:
    """Return a tag's value as an orientation, 1 to 8; anything else (other type, out of range) is 1."""
    if isinstance(value, bytes | tuple | list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bytes | str | tuple | list):
        return 1
    return next((number for number in range(2, 9) if value == number), 1)


def _jpeg(data: bytes) -> tuple[bytes, int] | None:
    """Keep all segments up to the scan except application segments; JFIF's and Adobe's describe the colours."""
    kept, at, orientation = [data[:2]], 2, 1
    while True:
        while data[at : at + 2] == b"\xff\xff":  # fill bytes
            at += 1
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == _SCAN:
            return b"".join(kept) + data[at:], orientation
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        body = data[at + 4 : end]
        if marker == _EXIF and body.startswith(b"Exif\0") and orientation == 1:
            orientation = exif_orientation(body)
        named = {_JFIF: b"JFIF\0", _ADOBE: b"Adobe"}.get(marker, b"?")
        if not (_JFIF <= marker <= 0xEF or marker == _COMMENT) or body.startswith(named):
            kept.append(data[at:end])
        at = end


def _png(data: bytes) -> tuple[bytes, int] | None:
    """Keep the chunks that pixels need, each with a correct checksum, whatever is damaged between them."""
    kept, at, orientation = [_PNG], len(_PNG), 1
    names = re.compile(b"|".join((*_PNG_KEPT, b"eXIf")))
    while found := names.search(data, at + 4):
        start = found.start() - 4
        (length,) = struct.unpack_from(">I", data, start)
        end = start + 12 + length
        name, body = found.group(), data[start + 8 : end - 4]
        sound = end <= len(data) and struct.unpack_from(">I", data, end - 4)[0] == zlib.crc32(name + body)
        if sound and name == b"eXIf":
            orientation = exif_orientation(body)
        elif sound:
            kept.append(data[start:end])
        elif start == at and name != b"eXIf":
            return None  # damaged itself
        at = end if sound else found.start()
    return b"".join(kept), orientation


def _webp(data: bytes) -> tuple[bytes, int] | None:
    """Keep the chunks of pixels; a damaged chunk of another kind after them ends the file."""
    kept, at, orientation = [], 12, 1
    while at + 8 <= len(data):
        name, (length,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
        end = at + 8 + length
        if name == b"EXIF":
            orientation = exif_orientation(data[at + 8 : end])
        if name in _WEBP_KEPT:
            if end > len(data):
                return None
            chunk = bytearray(data[at : end + length % 2])
            if name == b"VP8X" and length:
                chunk[8] &= ~_WEBP_METADATA
            kept.append(bytes(chunk))
        at = end + length % 2
    body = b"WEBP" + b"".join(kept)
    return b"RIFF" + struct.pack("<I", len(body)) + body, orientation


def _tiff(data: bytes) -> tuple[bytes, int] | None:
    """Append a new first directory with the tags that pixels need; what they point to stays in place."""
    order = "<" if data[:2] == b"II" else ">"
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, start)
    entries = [data[start + 2 + 12 * number : start + 14 + 12 * number] for number in range(count)]
    tags = [struct.unpack(f"{order}H", entry[:2])[0] for entry in entries]
    (after,) = struct.unpack_from(f"{order}I", data, start + 2 + 12 * count)
    kept = [entry for tag, entry in zip(tags, entries, strict=True) if tag in _TIFF_TAGS]
    directory = struct.pack(f"{order}H", len(kept)) + b"".join(kept) + struct.pack(f"{order}I", after)
    padding = b"\0" * (len(data) % 2)
    moved = data[:4] + struct.pack(f"{order}I", len(data) + len(padding)) + data[8:] + padding + directory
    return moved, exif_orientation(data[: start + 2 + 12 * count])
