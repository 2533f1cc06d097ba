"""Image files and their metadata: changed bytes, cut blocks, changed lengths, EXIF types and counts.

Damage in metadata alone must cost no pixel; damage elsewhere may cost the image, but never raises.
"""

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from PIL import Image, PngImagePlugin, features

from tasks.data.images.decode import Decoded, DecodeError, Limits, decode_bytes
from tasks.data.images.pixels import few_colours
from tasks.data.images.resizing import resize

from .frame import Case, case_rng

SHORT = 500
_LIMITS = Limits(max_pixels=2_000_000, min_side=1, enough=96)
_SIDES = (24, 17)
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8}  # of EXIF's types


def cases(seed: int) -> Iterator[Case]:
    """Yield damaged files without end, two of three with only their EXIF block damaged."""
    number = 0
    while True:
        rng = case_rng(seed, number)
        lot = rng.random()
        if lot < 0.2:
            kind = rng.choice(("JPEG", "PNG", "WEBP", "MPO"))
            yield Case(f"{kind} with damaged metadata", with_metadata(kind, rng))
        elif lot < 0.6:
            kind = rng.choice(("JPEG", "PNG", "WEBP", "TIFF", "MPO"))
            block = exif_block(rng)
            for _ in range(rng.choice((0, 1, 1, 2))):
                block = _DAMAGE[rng.choice(sorted(_DAMAGE))](block, rng)
            yield Case(f"{kind} with a damaged EXIF block", with_exif(kind, block[:60_000]))
        else:
            name = rng.choice(sorted(sources()))
            data, done = sources()[name], []
            for _ in range(rng.choice((1, 1, 2, 3))):
                done.append(rng.choice(sorted(_DAMAGE)))
                data = _DAMAGE[done[-1]](data, rng)
            yield Case(f"{name}: {', '.join(done)}", data)
        number += 1


def try_one(case: Case) -> str:
    """Decode as an ingest does; a damaged EXIF block must not affect the image."""
    try:
        found = decode_bytes(case.data, ".jpg", _LIMITS)
    except DecodeError as error:
        assert " with " not in case.name, f"sound pixels discarded: {error}"
        return error.reason
    _check(found)
    if " with " in case.name:
        assert same_image(found.image, sound(case.name.split()[0])), "other pixels, or turned to no known position"
    resize(found.image, 32)
    few_colours(found.image)
    return found.reason or "ok"


def _check(found: Decoded) -> None:
    assert found.image.dtype == np.uint8
    assert found.image.ndim == 3
    assert found.image.shape[2] == 3
    assert min(found.width, found.height) >= 1


def same_image(image: np.ndarray, upright: np.ndarray) -> bool:
    """Check whether the image is the other one in one of the eight orientations."""
    turned = [np.rot90(upright, quarter) for quarter in range(4)]
    return any(image.shape == each.shape and (image == each).all() for turn in turned for each in (turn, turn[:, ::-1]))


def exif_block(rng: random.Random) -> bytes:
    """Return a block with an orientation and a few further tags of random types and counts, often false."""
    order = rng.choice("<>")
    tags = sorted({0x0112, *rng.sample((0x010E, 0x010F, 0x0110, 0x011A, 0x0128, 0x0131, 0x0132, 0x8769, 0x8825), 3)})
    entries, blob, start = b"", b"", 8 + 2 + 12 * len(tags) + 4
    for tag in tags:
        kind = 3 if tag == 0x0112 and rng.random() < 0.7 else rng.choice((*_SIZES, 13, 0, 99))
        count = 1 if rng.random() < 0.7 else rng.choice((0, 2, 5, 1000, 2**31, 2**32 - 1))
        size = _SIZES.get(kind, 1) * count
        value = struct.pack(f"{order}H", rng.choice((1, 3, 6, 8, 0, 9))) + b"\0\0" if tag == 0x0112 else b"abc\0"
        if 4 < size < 2000:
            value, blob = struct.pack(f"{order}I", start + len(blob)), blob + rng.randbytes(size)
        elif rng.random() < 0.3:
            value = struct.pack(f"{order}I", rng.choice((0, 8, start, 2**31, 2**32 - 1)))
        entries += struct.pack(f"{order}HHI", tag, kind, count) + value
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return head + struct.pack(f"{order}H", len(tags)) + entries + bytes(4) + blob


def with_exif(kind: str, block: bytes) -> bytes:
    """Return the sound image of this format with the block as its EXIF, whatever it holds."""
    data = plain(kind)
    if kind in ("JPEG", "MPO"):
        body = b"Exif\0\0" + block
        return data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:]
    if kind == "PNG":
        return data[:33] + png_chunk(b"eXIf", block) + data[33:]
    if kind == "WEBP":
        width, height = _SIDES
        extended = bytes([0x08, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        body = b"WEBP" + _riff(b"VP8X", extended) + data[12:] + _riff(b"EXIF", block)
        return _riff(b"RIFF", body)
    # TIFF: the block's tags are its own; a directory that is damaged is the next best thing to them.
    at = struct.unpack("<I", data[4:8])[0]
    number = struct.unpack("<H", data[at : at + 2])[0]
    entries = [data[at + 2 + 12 * n : at + 14 + 12 * n] for n in range(number)]
    pad = block[16:46] + bytes(30)
    extra = [struct.pack("<HHI", tag, pad[2 * n] % 14, pad[2 * n + 1]) + pad[n : n + 4] for n, tag in enumerate(_EXTRA)]
    entries = sorted(
        [entry for entry in entries if entry[:2] not in _EXTRA_BYTES] + extra, key=lambda e: e[1] * 256 + e[0]
    )
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4)
    return data[:4] + struct.pack("<I", len(data)) + data[8:] + directory


def with_metadata(kind: str, rng: random.Random) -> bytes:
    """Return the sound image of this format with one or more blocks of random metadata."""
    data = plain(kind)
    for _ in range(rng.choice((1, 1, 2, 3))):
        body = rng.choice(_BODIES)(rng)[:60_000]
        if kind in ("JPEG", "MPO"):
            marker = rng.choice((0xE1, 0xE2, 0xE2, 0xED, 0xEC, 0xFE))
            block = rng.choice(_HEADS) + body
            data = data[:2] + bytes((0xFF, marker)) + struct.pack(">H", len(block) + 2) + block + data[2:]
        elif kind == "PNG":
            chunk = png_chunk(rng.choice(_CHUNKS), rng.choice((b"", b"Comment\0\0", b"ICC\0\0")) + body)
            data = data[:33] + (chunk if rng.random() < 0.7 else chunk[:-2] + rng.randbytes(2)) + data[33:]
        else:
            data = _riff(b"RIFF", data[8:] + _riff(rng.choice((b"ICCP", b"EXIF", b"XMP ", b"abcd")), body))
    return data


_BODIES: tuple[Callable[[random.Random], bytes], ...] = (
    lambda rng: rng.randbytes(rng.choice((0, 1, 2, 3, 7, 40, 300))),
    lambda rng: b"",
    lambda rng: exif_block(rng),
    lambda rng: b'<x tiff:Orientation="' + rng.randbytes(2) + b'"/>',
    lambda rng: zlib.compress(bytes(3_000_000)),
    lambda rng: b"8BIM" + rng.randbytes(30),
)
_HEADS = (
    b"", b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0", b"ICC_PROFILE\0", b"ICC_PROFILE\0\1\2", b"MPF\0",
    b"MPF\0II*\0\x08\0\0\0", b"Photoshop 3.0\0", b"FPXR\0",
)  # fmt: skip
_CHUNKS = (
    b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"tIME", b"sBIT", b"bKGD", b"hIST",
    b"sPLT", b"sCAL", b"oFFs", b"vpAg", b"caNv", b"abCd",
)  # fmt: skip
_EXTRA = (0x010E, 0x010F, 0x0112, 0x0131, 0x02BC, 0x8769)
_EXTRA_BYTES = {struct.pack("<H", tag) for tag in _EXTRA}


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """Return a chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _riff(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def _image() -> Image.Image:
    width, height = _SIDES
    return Image.fromarray(np.random.default_rng(5).integers(0, 256, (height, width, 3), dtype=np.uint8))


@cache
def plain(kind: str) -> bytes:
    """Return a sound image of the format without metadata."""
    buffer = io.BytesIO()
    more = {"save_all": True, "append_images": [_image()]} if kind == "MPO" else {}
    _image().save(buffer, kind, **more)
    return buffer.getvalue()


@cache
def sound(kind: str) -> np.ndarray:
    """Return its pixels."""
    return decode_bytes(plain(kind), "", _LIMITS).image


@cache
def sources() -> dict[str, bytes]:
    """Return sound files of many kinds, by name, with all the metadata that Pillow writes."""
    image, exif = _image(), Image.Exif()
    exif[0x0112], exif[0x0131] = 6, "a program"
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "a remark " * 9, zip=True)
    text.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="8"/>', zip=True)
    profile = bytes(128)
    grey16 = Image.fromarray((np.arange(24 * 17, dtype=np.uint16) * 150).reshape(17, 24))
    wanted = {
        "JPEG": (image, "JPEG", {"exif": exif, "icc_profile": profile, "comment": b"x", "xmp": b"<x/>"}),
        "JPEG progressive": (image, "JPEG", {"progressive": True, "dpi": (72, 72)}),
        "JPEG CMYK": (image.convert("CMYK"), "JPEG", {}),
        "MPO": (image, "MPO", {"save_all": True, "append_images": [image], "exif": exif}),
        "PNG": (image, "PNG", {"exif": exif, "pnginfo": text, "icc_profile": profile}),
        "PNG palette": (image.quantize(16), "PNG", {"transparency": 3}),
        "PNG 16": (grey16, "PNG", {}),
        "PNG alpha": (image.convert("RGBA"), "PNG", {}),
        "APNG": (image, "PNG", {"save_all": True, "append_images": [image.rotate(180)]}),
        "BMP": (image, "BMP", {}),
        "BMP palette": (image.quantize(16), "BMP", {}),
        "BMP alpha": (image.convert("RGBA"), "BMP", {}),
        "GIF": (image.quantize(16), "GIF", {"comment": b"a remark"}),
        "GIF frames": (image, "GIF", {"save_all": True, "append_images": [image.rotate(180)]}),
        "TIFF": (image, "TIFF", {"exif": exif, "icc_profile": profile}),
        "TIFF LZW": (image, "TIFF", {"compression": "tiff_lzw", "exif": exif}),
        "TIFF deflate": (image, "TIFF", {"compression": "tiff_adobe_deflate"}),
        "TIFF JPEG": (image, "TIFF", {"compression": "jpeg"}),
        "TIFF 16": (grey16, "TIFF", {}),
        "TIFF pages": (image, "TIFF", {"save_all": True, "append_images": [image]}),
        "WEBP": (image, "WEBP", {"exif": exif, "icc_profile": profile, "xmp": b"<x/>"}),
        "WEBP lossless": (image.convert("RGBA"), "WEBP", {"lossless": True}),
        "TIFF JPEG turned": (image, "TIFF", {"compression": "jpeg", "exif": exif}),
        "PPM": (image, "PPM", {}),
        "PGM 16": (grey16, "PPM", {}),
        "JPEG 2000": (image, "JPEG2000", {}),
        "JPEG 2000 stream": (image.convert("L"), "JPEG2000", {"no_jp2": True}),
        "WEBP frames": (image, "WEBP", {"save_all": True, "append_images": [image.rotate(180)]}),
    }
    if features.check("avif"):
        wanted["AVIF"] = (image, "AVIF", {"exif": exif, "speed": 10})
    files = {}
    for name, (image, kind, options) in wanted.items():
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        files[name] = buffer.getvalue()
    return files


def _bytes_changed(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 10))):
        if changed:
            changed[_place(rng, len(changed))] = rng.choice((0, 255, rng.randrange(256)))
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _block_removed(data: bytes, rng: random.Random) -> bytes:
    at = _place(rng, len(data))
    return data[:at] + data[at + rng.randrange(1, 40) :]


def _block_inserted(data: bytes, rng: random.Random) -> bytes:
    at = _place(rng, len(data))
    return data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:]


def _block_repeated(data: bytes, rng: random.Random) -> bytes:
    at = _place(rng, len(data))
    return data[:at] + data[at : at + rng.randrange(1, 80)] * 2 + data[at + 80 :]


def _length_changed(data: bytes, rng: random.Random) -> bytes:
    kind = rng.choice(("<H", ">H", "<I", ">I"))
    size = struct.calcsize(kind)
    at = _place(rng, max(1, len(data) - size))
    most = 2 ** (8 * size)
    value = rng.choice((0, 1, 2, most - 1, most // 2, most // 2 - 1, rng.randrange(most), rng.randrange(64)))
    return data[:at] + struct.pack(kind, value) + data[at + size :]


def _place(rng: random.Random, length: int) -> int:
    """Return a position, mostly near the beginning, where headers and metadata are."""
    return rng.randrange(max(1, min(length, 200) if rng.random() < 0.7 else length))


_DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bytes changed": _bytes_changed,
    "cut": _cut,
    "block removed": _block_removed,
    "block inserted": _block_inserted,
    "block repeated": _block_repeated,
    "length changed": _length_changed,
}
