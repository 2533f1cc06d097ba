"""Ways to falsify the header of a safetensors file, and to damage its bytes."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

_DTYPES = (
    "BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64", "C64", "F8_E4M3",
    "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "f32", "", "X", 7, None,
)  # fmt: skip
_SAME_SIZE = (
    ("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), ("I16", "U16", "F16", "BF16"), ("I32", "U32", "F32"),
    ("I64", "U64", "F64", "C64"),
)  # fmt: skip
_SIZES = (0, -1, 1, 2, 3, 10**6, 2**31, 2**32, 2**53, 2**63, 2**64, 10**30, 1.5, "3", None, [], {})


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: bytes, body: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def _entry(header: dict[str, Any], rng: random.Random) -> Any:
    names = [name for name in header if name != "__metadata__" and isinstance(header[name], dict)]
    return header[rng.choice(names)] if names else {}


def _dtype(header: dict[str, Any], rng: random.Random) -> None:
    _entry(header, rng)["dtype"] = rng.choice(_DTYPES)


def _dtype_of_the_same_size(header: dict[str, Any], rng: random.Random) -> None:
    entry = _entry(header, rng)
    for alike in _SAME_SIZE:
        if entry.get("dtype") in alike:
            entry["dtype"] = rng.choice(alike)
            return


def _shape(header: dict[str, Any], rng: random.Random) -> None:
    entry = _entry(header, rng)
    shape = entry.get("shape")
    if not isinstance(shape, list) or rng.random() < 0.3:
        entry["shape"] = rng.choice(([], [0], [1, 1], None, "3", 3, [2**40] * 4, [[2]], {}))
    elif shape:
        shape[rng.randrange(len(shape))] = rng.choice(_SIZES)


def _turned(header: dict[str, Any], rng: random.Random) -> None:
    """Return another shape with the same number of values."""
    entry = _entry(header, rng)
    if isinstance(entry.get("shape"), list):
        rng.shuffle(entry["shape"])


def _offsets(header: dict[str, Any], rng: random.Random) -> None:
    entry = _entry(header, rng)
    held = entry.get("data_offsets")
    first, last = held if isinstance(held, list) and len(held) == 2 else (0, 4)
    ways = ([last, first], [first, rng.choice(_SIZES)], [rng.choice(_SIZES), last], [0, 4], [first], [], None, "0,4")
    entry["data_offsets"] = rng.choice(ways)


def _overlap(header: dict[str, Any], rng: random.Random) -> None:
    one, other = _entry(header, rng), _entry(header, rng)
    one["data_offsets"] = other.get("data_offsets")


def _without(header: dict[str, Any], rng: random.Random) -> None:
    holder = _entry(header, rng) if rng.random() < 0.5 else header
    if holder:
        del holder[rng.choice(sorted(holder))]


def _renamed(header: dict[str, Any], rng: random.Random) -> None:
    name = rng.choice(sorted(header)) if header else None
    if name is not None:
        header[rng.choice(("", "é\x00", f"{name}2", "../x", "\ud800", "x" * 5000))] = header.pop(name)


def _extra(header: dict[str, Any], rng: random.Random) -> None:
    entry = {"dtype": rng.choice(_DTYPES), "shape": [rng.choice(_SIZES)], "data_offsets": [0, rng.choice(_SIZES)]}
    header[rng.choice(("more", "layer.weight", "__x__"))] = rng.choice((entry, 3, [], {}))


def _metadata(header: dict[str, Any], rng: random.Random) -> None:
    unusual = (
        {"labels": "[" * 5000},
        {"labels": '["rust", "rust"]'},
        {"labels": "[1, 2]"},
        {"a": 1},
        [],
        "text",
        None,
        5,
    )
    header["__metadata__"] = rng.choice((*unusual, {"labels": '["crack", "rust"]'}, {"labels": '{"rust": 0}'}))


def _length(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice((0, 1, 7, len(data), len(data) - 8, len(data) - 9, 10**8, 2**32, 2**63 - 1, 2**64 - 1))
    return struct.pack("<Q", size) + data[8:]


def _header_bytes(data: bytes, rng: random.Random) -> bytes:
    changed, end = bytearray(data), 8 + struct.unpack("<Q", data[:8])[0]
    for _ in range(rng.choice((1, 2, 8))):
        changed[rng.randrange(8, max(9, min(end, len(data))))] = rng.randrange(256)
    return bytes(changed)


def _body_bytes(data: bytes, rng: random.Random) -> bytes:
    changed, start = bytearray(data), min(len(data) - 1, 8 + struct.unpack("<Q", data[:8])[0])
    for _ in range(rng.choice((1, 4))):
        changed[rng.randrange(start, len(data))] = rng.choice((0, 127, 255, rng.randrange(256)))
    return bytes(changed)


def _name_twice(data: bytes, rng: random.Random) -> bytes:
    header, body = parts(data)
    names = [name for name in header if name != "__metadata__"] or ["x"]
    entry = json.dumps(header.get(rng.choice(names)))
    text = json.dumps(header)[:-1] + f", {json.dumps(rng.choice(names))}: {entry}}}"
    return joined(text.encode("utf-8", "surrogatepass"), body)


def _deep(data: bytes, rng: random.Random) -> bytes:
    depth = rng.choice((50, 200, 100_000))
    return joined(b'{"a": ' + b"[" * depth + b"]" * depth + b"}", parts(data)[1])


HEADER = {
    "dtype": _dtype, "another dtype": _dtype_of_the_same_size, "shape": _shape, "turned": _turned, "offsets": _offsets,
    "overlap": _overlap, "without": _without, "renamed": _renamed, "extra": _extra, "metadata": _metadata,
}  # fmt: skip
BYTES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "length": _length, "header bytes": _header_bytes, "body bytes": _body_bytes, "a name twice": _name_twice,
    "deep": _deep, "cut": lambda data, rng: data[: rng.randrange(len(data))],
    "longer": lambda data, rng: data + b"\0" * rng.choice((1, 8, 1000)), "empty": lambda data, rng: b"",
}  # fmt: skip
