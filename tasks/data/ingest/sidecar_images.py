"""Images next to a photograph of the same name: masks, and the same photograph saved again.

``a.png`` next to ``a.jpg``, ``a_mask.png``, ``masks/a.png``, ``ground_truth/crack/a_mask.png``: the name makes such a
file a candidate, then its colours decide. A mask has few colours, its photograph many. Trained as photographs, masks
make every metric look better than it is.
"""

import json
import os
import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from models.errors import UserError
from tasks.data.formats.shared.tree import ROLE_FOLDERS, split_from_folders
from tasks.data.images.image_kinds import SUFFIXES
from tasks.data.text.patterns import literal, matcher

Row = dict[str, Any]
Companions = Literal["ask", "drop", "keep"]

# Words of mask names, in folders and files; the second set only together with one of the first.
_MASK = frozenset(
    {
        "mask",
        "masks",
        "msk",
        "gt",
        "gts",
        "groundtruth",
        "seg",
        "segs",
        "segm",
        "segmentation",
        "segmentations",
        "label",
    }
    | {"labels", "labelids", "annotation", "annotations", "anno", "annot", "matte", "mattes", "trimap", "trimaps"}
    | {
        "alpha",
        "binary",
        "bin",
        "saliency",
        "instance",
        "instances",
        "semantic",
        "panoptic",
        "truth",
        "contour",
        "edge",
    }
)
_MASK_QUALIFIERS = frozenset({"ground", "class", "object", "ids", "fine", "coarse", "color", "colour", "png", "bw"})
_PHOTO = frozenset(
    {"image", "images", "img", "imgs", "im", "photo", "photos", "rgb", "sat", "left", "img8bit", "original", "orig"}
    | {"jpegimages", "input", "inputs", "jpg", "jpeg"}
)
_WORDS = re.compile(r"[^\W_]+")
_MAX_SHOWN = 5
_REFUSED_IMAGES = frozenset({"flat", "bad_mode"})  # the reasons with which masks of 16 or 32 bits are refused


@dataclass(frozen=True)
class Pair:
    """An image and the photograph that it belongs to.

    Attributes:
        row: The image.
        photograph: The photograph of the same name.
        mask: Whether it is a mask; else, by its name, it is the same photograph again.
    """

    row: Row
    photograph: Row
    mask: bool


def find_companions(rows: Sequence[Row]) -> list[Pair]:
    """Find every image that accompanies a photograph.

    Args:
        rows: Manifest rows with ``path``, ``width``, ``reason`` and ``few_colours``.
    """
    files = [row for row in rows if _suffix(row["path"]) in SUFFIXES and (row["width"] or row["reason"] == "bad_mode")]
    pairs: dict[str, Pair] = {}
    doubtful: list[Pair] = []
    sure = 0
    for row, photograph in (*_same_stem(files), *_mask_names(files), *_longer_names(files)):
        if row["path"] in pairs:
            continue
        found = _classify(row, photograph)
        if found is not None and found.mask and found.row["few_colours"] == "nearly":
            doubtful.append(found)
        elif found is not None:
            pairs[found.row["path"]] = found
            sure += found.mask
    # Nearly few colours (a mask saved as JPEG, a dark photograph) mean a mask if most candidates have them.
    named = len(doubtful) + len(pairs)
    for found in doubtful:
        if 2 * (len(doubtful) + sure) >= named:
            pairs.setdefault(found.row["path"], found)
        elif _folder_and_stem(found.row["path"]) == _folder_and_stem(found.photograph["path"]):
            pairs.setdefault(found.row["path"], Pair(found.row, found.photograph, mask=False))
    return list(pairs.values())


def row_links(pairs: Sequence[Pair], kept: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the pairs among the rows that stay, as pairs of their positions."""
    number = {row["path"]: place for place, row in enumerate(kept)}
    both = [(number.get(pair.photograph["path"]), number.get(pair.row["path"])) for pair in pairs]
    return [(one, other) for one, other in both if one is not None and other is not None]


def refuse_masks(pairs: Sequence[Pair], rows: Sequence[Row], where: str) -> None:
    """Refuse masks that would be trained on, and name the settings that decide.

    Raises:
        UserError: There are some.
    """
    masks = [pair for pair in pairs if pair.mask and pair.row["labels"] is not None]
    if not masks:
        return
    shown = "".join(f"\n    {pair.row['path']} beside {pair.photograph['path']}" for pair in masks[:_MAX_SHOWN])
    raise UserError(
        f"{len(masks)} images look like masks of others: same name, but few colours instead of many",
        where=where,
        expected="photographs only",
        found=f"the first:{shown}",
        hint=masks_hint(masks, rows),
    )


def masks_hint(masks: Sequence[Pair], rows: Sequence[Row]) -> str:
    """Return the setting that leaves the masks out, and those that decide otherwise."""
    patterns = exact_patterns([pair.row["path"] for pair in masks], [row["path"] for row in rows if row["width"]])
    listed = shlex.quote(f"ingest.exclude={json.dumps(patterns, ensure_ascii=False)}")
    out = f"--set {listed}" if patterns else "--set ingest.companions=drop" if masks[0].mask else "ingest.exclude"
    keep = "--set ingest.companions=keep trains on them too, in the split of their photograph"
    asked = any(pair.mask and pair.row["labels"] is not None for pair in masks)
    return f"{out} leaves them out" + (f"; {keep}" if asked else "")


def exact_patterns(masks: Sequence[str], images: Sequence[str]) -> list[str]:
    """Return up to four patterns that match all the masks and no other image; none if that is impossible.

    Args:
        masks: Their paths.
        images: The paths of all images.
    """
    others = set(images) - set(masks)
    left, chosen = list(masks), list[str]()
    fit: dict[str, bool] = {}
    while left and len(chosen) < 4:
        counts = Counter(pattern for mask in left for pattern in _patterns(mask))
        best = next((p for p, _ in counts.most_common() if fit.setdefault(p, not any(map(matcher([p]), others)))), None)
        if best is None:
            return []
        chosen.append(best)
        left = [mask for mask in left if not matcher([best])(mask)]
    return [] if left else chosen


def _patterns(path: str) -> Iterator[str]:
    """Yield patterns that match a mask, the most specific ones first."""
    *folders, name = path.split("/")
    stem, suffix = os.path.splitext(name)  # noqa: PTH122
    for found in reversed(list(_WORDS.finditer(stem))):
        if found.group().lower() not in _MASK | _MASK_QUALIFIERS:
            if found.end() < len(stem):
                yield f"*{literal(stem[found.end() :])}{literal(suffix)}"
            break
    yield from (literal(folder) for folder in folders if _is_mask_name(folder))
    cuts = [cut.span() for cut in re.finditer(r"[_ -]+", stem) if cut.start() > 0 and cut.end() < len(stem)]
    if cuts:
        yield f"*{literal(stem[cuts[-1][0] :])}{literal(suffix)}"
        yield f"{literal(stem[: cuts[0][1]])}*{literal(suffix)}"
    yield f"*{literal(suffix)}"
    yield f"{literal('/'.join(folders))}/*{literal(suffix)}" if folders else literal(name)
    yield literal(path)


def _classify(row: Row, photograph: Row) -> Pair | None:
    """Return the two as a pair, the mask being the one with few colours; ``None`` if only the names agree."""
    same_stem = _folder_and_stem(row["path"]) == _folder_and_stem(photograph["path"])
    for one, other in ((row, photograph), (photograph, row)):
        few = one["few_colours"] or ("exact" if one["reason"] in _REFUSED_IMAGES else "")
        named = _is_mask_name(one["path"]) or not _is_mask_name(other["path"])
        if (
            other["few_colours"] != "exact"
            and (few == "exact" or (few == "nearly" and not other["few_colours"]))
            and named
        ):
            return Pair(one, other, mask=True)
    return Pair(row, photograph, mask=False) if same_stem else None


def _same_stem(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield images of one folder and stem with different suffixes, each with the one that has most colours."""
    by_stem: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_stem[_folder_and_stem(row["path"])].append(row)
    for some in by_stem.values():
        if len(some) > 1:
            first = min(some, key=lambda row: ("", "nearly", "exact").index(row["few_colours"]))
            yield from ((row, first) for row in some if row is not first)


def _mask_names(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield images whose name or folder marks them as masks, each with the photograph that it belongs to."""
    named = [row for row in rows if _is_mask_name(row["path"])]
    if not named:
        return
    by_key: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        by_key[_match_key(row["path"])].append(row)
    for row in named:
        candidates = [other for other in by_key[_match_key(row["path"])] if not _is_mask_name(other["path"])]
        if candidates:
            folder, split = _folder_and_stem(row["path"])[0], split_from_folders(row["path"])
            yield (
                row,
                max(
                    candidates,
                    key=lambda one: (
                        _folder_and_stem(one["path"])[0] == folder,
                        split_from_folders(one["path"]) == split,
                        one["few_colours"] == "",
                    ),
                ),
            )


def _longer_names(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield images of few colours named like a photograph plus a suffix (``a_m.png``), if nearly all such have few."""
    if all(row["few_colours"] != "exact" for row in rows):
        return
    by_stem = {_folder_and_stem(row["path"]): row for row in rows}
    found: dict[tuple[str, str], list[tuple[Row, Row]]] = defaultdict(list)
    for (folder, stem), row in by_stem.items():
        for cut in re.finditer(r"[_. -]+", stem):
            for base, extra in ((stem[: cut.start()], stem[cut.start() :]), (stem[cut.end() :], stem[: cut.end()])):
                if base and (folder, base) in by_stem:
                    found[folder and "*", extra].append((row, by_stem[folder, base]))
    for some in found.values():
        masks = [
            (row, photograph)
            for row, photograph in some
            if row["few_colours"] == "exact" and not photograph["few_colours"]
        ]
        if len(masks) > 1 and len(masks) >= 0.8 * len(some):
            yield from masks


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()  # noqa: PTH122


def _folder_and_stem(path: str) -> tuple[str, str]:
    """Return the folder, and the stem without a second image suffix (``a.jpg.png``), for comparison."""
    folder, _, name = unicodedata.normalize("NFC", path).casefold().rpartition("/")
    stem, _ = os.path.splitext(name)  # noqa: PTH122
    return folder, os.path.splitext(stem)[0] if _suffix(stem) in SUFFIXES else stem  # noqa: PTH122


@lru_cache(maxsize=65536)
def _words(text: str) -> tuple[str, ...]:
    """Return the words of a name in lower case, split also at capitals (``SegmentationClass``)."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFC", text))
    return tuple(found.group().lower() for found in _WORDS.finditer(parted))


def _is_mask_name(path: str) -> bool:
    """Check whether a word of a path, without its suffix, is one for masks."""
    return not _MASK.isdisjoint(_words(os.path.splitext(path)[0]))  # noqa: PTH122


def _match_key(path: str) -> tuple[str, ...]:
    """Return what a photograph and its masks share: the words of the path without those for masks, photos, splits."""
    mask = _is_mask_name(path)
    passed = _PHOTO | _MASK | _MASK_QUALIFIERS if mask else _PHOTO
    *folders, name = path.split("/")
    telling = [
        folder for folder in folders if folder.lower() not in ROLE_FOLDERS and split_from_folders(f"{folder}/x") is None
    ]
    words = [word for folder in telling for word in _words(folder) if word not in passed]
    stem = _folder_and_stem(name)[1] if not mask else os.path.splitext(name)[0]  # noqa: PTH122
    return (*words, "/", *(word for word in _words(stem) if word not in passed))
