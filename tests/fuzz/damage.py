"""Ways to damage texts (bytes, tokens, encoding) and the values inside a JSON."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
UNUSUAL_WORDS = (
    "", "0", "-1", "1e309", "NaN", "Infinity", "-Infinity", "9" * 30, "9" * 5000, "0.5.5", "1_0", "\u0663", "\uff11",
    "null", "true", "a" * 3000, "\0", "\ufeff", "\u202e", "\u2028", "\x0b", "é", "e\u0301", "绝缘子", "😀", "..", "/",
    "\\", "C:\\x", "../../x", "%00", "%2e%2e%2f", "<", "&", "<!--", "{", "}", "[", "]", '"', "'", ",", ":",
    ";", "&lt;", "]]>", "\t", "\r", "\n", "- ", "!!python/object:x", "&a", "*a",
)  # fmt: skip
_ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "gb18030", "cp1252", "cp1251", "shift_jis", "utf-7")


def damaged(text: str, rng: random.Random) -> tuple[bytes, str]:
    """Return the text after one to three kinds of damage, as bytes, and what was done."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(_TEXTS))
        text = _TEXTS[name](text, rng)[:400_000]
        done.append(name)
    data = encoded(text, rng, done)
    if rng.random() < 0.3:
        name = rng.choice(sorted(_BYTES))
        data = _BYTES[name](data, rng)
        done.append(name)
    return data, ", ".join(done)


def encoded(text: str, rng: random.Random, done: list[str]) -> bytes:
    """Return the text in UTF-8, sometimes in another encoding."""
    if rng.random() < 0.15:
        done.append(rng.choice(_ENCODINGS))
        return text.encode(done[-1], "replace")
    return text.encode("utf-8", "surrogatepass")


def _tokens(text: str, rng: random.Random, change: Callable[[list[str], int], None]) -> str:
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 2, 5)) if tokens else 0):
        change(tokens, rng.randrange(len(tokens)))
        if not tokens:
            break
    return "".join(tokens)


def _replace(text: str, rng: random.Random) -> str:
    return _tokens(text, rng, lambda tokens, at: tokens.__setitem__(at, rng.choice(UNUSUAL_WORDS)))


def _drop(text: str, rng: random.Random) -> str:
    return _tokens(text, rng, lambda tokens, at: tokens.__delitem__(at))


def _insert(text: str, rng: random.Random) -> str:
    return _tokens(text, rng, lambda tokens, at: tokens.insert(at, rng.choice(UNUSUAL_WORDS)))


def _move(text: str, rng: random.Random) -> str:
    return _tokens(text, rng, lambda tokens, at: tokens.insert(rng.randrange(len(tokens)), tokens.pop(at)))


def _repeat(text: str, rng: random.Random) -> str:
    if not text:
        return text
    start = rng.randrange(len(text))
    part = text[start : start + rng.choice((1, 5, 40, 200))]
    return text[:start] + part * rng.choice((2, 3, 50, 2000)) + text[start:]


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


_TEXTS = {"replaced": _replace, "dropped": _drop, "inserted": _insert, "moved": _move, "repeated": _repeat, "cut": _cut}


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 20)) if changed else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _noise(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 4, 64))) + data[at:]


def _lose(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 4, 64)) :]


_BYTES = {"bytes flipped": _flip, "bytes added": _noise, "bytes lost": _lose}


def unusual_value(rng: random.Random) -> Any:
    """Return an unusual JSON value."""
    choice = rng.randrange(14)
    if choice == 0:
        nested: Any = []
        for _ in range(rng.choice((3, 200, 900))):
            nested = [nested] if rng.random() < 0.5 else {"name": nested}
        return nested
    plain = (None, True, False, -1, 2**63, 10**300, float("nan"), float("inf"), 1e300, 0.5, [], {}, "\ud800")
    if choice < 7:
        return rng.choice(plain)
    if choice < 10:
        return rng.choice(UNUSUAL_WORDS)
    return rng.choice(([1, 2, 3, 4], [[1]], {"id": 1}, {"name": "x"}, "1", "1.0", 1.0, " ", ["crack"]))


def damaged_json(value: Any, rng: random.Random) -> Any:
    """Return a copy with one to three of its values replaced, removed, renamed, repeated or exchanged."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return unusual_value(rng)
        holder, key = rng.choice(places)
        action = rng.randrange(7)
        if action <= 2:
            holder[key] = unusual_value(rng)
        elif action == 3:
            del holder[key]
        elif action == 4:
            other, its = rng.choice(places)
            if its in other if isinstance(other, dict) else its < len(other):
                holder[key], other[its] = json.loads(json.dumps([other[its], holder[key]]))
        elif action == 5 and isinstance(holder, dict):
            holder[rng.choice((key.upper(), f"{key}s", "id", "name", rng.choice(UNUSUAL_WORDS)))] = holder.pop(key)
        elif isinstance(holder, list):
            holder.insert(key, holder[key])
        else:
            holder[key] = [holder[key]]
    return value


def _places(value: Any) -> Any:
    """Yield (holder, key) of every value inside, down to a few levels."""
    stack = [(value, 0)]
    while stack:
        holder, depth = stack.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            if depth < 6:
                stack.append((holder[key], depth + 1))
