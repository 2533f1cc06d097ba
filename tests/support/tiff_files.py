"""TIFF files with chosen tags, made for a test."""

import struct

from tests.fuzz.images import plain


def tag(order, number, kind, count, value):
    return struct.pack(f"{order}HHI", number, kind, count) + value


def tiff_with(*tags):
    """Return a TIFF whose directory also has these tags."""
    data = plain("TIFF")
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    entries = [data[at + 2 + 12 * n : at + 14 + 12 * n] for n in range(count)]
    entries = sorted([*entries, *tags], key=lambda entry: struct.unpack_from("<H", entry))
    return (
        data[:4]
        + struct.pack("<I", len(data))
        + data[8:]
        + struct.pack("<H", len(entries))
        + b"".join(entries)
        + bytes(4)
    )
