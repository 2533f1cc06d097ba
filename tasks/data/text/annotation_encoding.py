"""One encoding for all annotation files of a source: a name must not be read in two ways."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from models.errors import UserError
from tasks.data.text.plausibility import CANDIDATES, non_ascii_words, pieces, readings
from tasks.data.text.read_text import PLAUSIBLE, Encodings, TextError, best_encoding, certain_text, declared_text


def shared_encodings(files: Iterable[Path], configured: str | None = None) -> Encodings:
    """Decide the encoding of a source's annotation files together.

    Files whose encoding is certain, or declared and plausible, provide known words; the others are read as one text. A
    file that is not text in any encoding is reported in its own row.

    Raises:
        UserError: It is unclear, or the files are in several encodings.
    """
    if configured is not None:
        return Encodings(configured)
    words: set[str] = set()
    unsure: dict[Path, tuple[bytes, ...]] = {}
    for path in files:
        try:
            data = path.read_bytes()
        except OSError:
            continue  # reported in the file's own row
        if data.isascii() or not (some := pieces(data)):
            continue
        found = certain_text(data) or declared_text(data, some, Encodings())
        if found is not None:
            words.update(non_ascii_words(found[0]))
        else:
            unsure[path] = some
    # A damaged file does not influence how the others are read.
    unsure = {path: some for path, some in unsure.items() if _is_text(some)} or unsure
    together = tuple(dict.fromkeys(piece for some in unsure.values() for piece in some))
    known = Encodings(known=frozenset(words))
    if not together:
        return known
    first, *others = unsure
    where = f"{first}" + (f" and {len(others)} more files" if others else "")
    try:
        best = best_encoding(together, known, where, ask=True, part=bool(others))
    except TextError:
        return known  # reported in the rows of the files
    except UserError:
        _refuse_several(unsure, known, None)
        raise
    _refuse_several(unsure, known, best)
    return replace(known, shared=best)


@lru_cache(1024)
def _is_text(some: tuple[bytes, ...]) -> bool:
    found = readings(some, CANDIDATES)
    return bool(found) and found[0].score >= PLAUSIBLE


def _refuse_several(unsure: dict[Path, tuple[bytes, ...]], known: Encodings, best: str | None) -> None:
    """Refuse files that are each clear, but in different encodings than ``best`` or than one another."""
    first: dict[str, Path] = {}
    seen: set[tuple[bytes, ...]] = set()
    for path, some in unsure.items():
        if some in seen:
            continue
        seen.add(some)
        try:
            single = best_encoding(some, known, path, ask=True)
        except (TextError, UserError):
            continue
        if best is None or single == best or _texts(some, single) != _texts(some, best):
            first.setdefault(single, path)
    if len(first) > 1:
        raise UserError(
            "the annotation files seem to be in several encodings",
            found="".join(f"\n    {path} in {name}" for name, path in list(first.items())[:4]),
            hint=f"save them as UTF-8, declare the encoding in each XML, or set {known.key} if all are in one",
        )


def _texts(some: Sequence[bytes], encoding: str) -> list[str]:
    return [piece.decode(encoding, "replace") for piece in some]
