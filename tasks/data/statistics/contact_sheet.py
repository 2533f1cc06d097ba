"""Contact sheets: many small images with captions in one PNG; of some files, or of what a site has."""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from tasks.core.names import visible
from tasks.core.randomness import numpy_generator
from tasks.core.tables import read_table
from tasks.data.dataset import SAMPLES, Dataset
from tasks.plotting.style import DPI, GREY, INK, PALE, new_figure, one_line, shortened

MAX_IMAGES = 120  # on a sheet
_TILE, _GAP, _MARGIN, _LINE, _HEAD = 192, 18, 24, 19, 56  # pixels
_COLUMNS, _LETTERS, _LINES = 8, 27, 4  # letters that fit below a tile, lines of a caption
_FILE_LETTERS = 22  # of a file name
_NO_IMAGE = "no image"


def contact_sheet(
    images: np.ndarray | Iterable[np.ndarray | None], captions: Sequence[str], title: str, path: Path
) -> None:
    """Write a sheet of at most 120 images, 8 in a row, each in a square of 192 pixels; the title counts the others.

    Images of at most 96 pixels are enlarged by a whole number without smoothing, others fill the square; their shape
    is kept.

    Args:
        images: uint8 [k, 3, H, W] as one array; or one by one as uint8 [H, W, 3] or [H, W], ``None`` for an image
            that could not be read. An iterator is read image by image, so that not all need fit into memory.
        captions: One for each image; a line break starts a new line. What is over 4 lines of 27 letters is cut.
        title: Above the sheet.
        path: The PNG file.
    """
    shown = min(len(captions), MAX_IMAGES)
    rows, columns = max(1, math.ceil(shown / _COLUMNS)), min(_COLUMNS, max(shown, 4))
    lines = [_lines(caption) for caption in captions[:shown]]
    cell = _TILE + _GAP + _LINE * max((len(part) for part in lines), default=0)
    width, height = 2 * _MARGIN + columns * (_TILE + _GAP) - _GAP, _HEAD + rows * cell + _MARGIN
    sheet = np.full((height, width, 3), 255, dtype=np.uint8)
    one_by_one = (p.transpose(1, 2, 0) for p in images) if isinstance(images, np.ndarray) else iter(images)
    corners = [(_MARGIN + i % _COLUMNS * (_TILE + _GAP), _HEAD + i // _COLUMNS * cell) for i in range(shown)]
    missing = []
    for (x, y), image in zip(corners, islice(one_by_one, shown), strict=True):
        tile = None if image is None else _tile(image)
        if tile is None:
            missing.append((x, y))
            tile = np.full((_TILE, _TILE, 3), int(PALE[1:3], 16), dtype=np.uint8)
        sheet[y + _TILE - tile.shape[0] : y + _TILE, x : x + tile.shape[1]] = tile  # next to its caption
    texts = [(x + _TILE / 2, y + _TILE / 2, _NO_IMAGE, GREY, "center") for x, y in missing]
    for (x, y), part in zip(corners, lines, strict=True):
        texts += [(x, y + _TILE + 4 + _LINE * n, line, INK, "left") for n, line in enumerate(part)]
    _write(sheet, f"{title}{f', {shown} of {len(captions)}' if shown < len(captions) else ''}", texts, path)


def sample_sheet(dataset: Dataset, site: str, per_site: int, seed: int, path: Path) -> None:
    """Write a sheet of a site's images with their split, file and labels.

    Args:
        dataset: The data set.
        site: One of its sites.
        per_site: Images to show, at most; 120 are the most that a sheet holds.
        seed: Chooses them, together with the site's name.
        path: The PNG file.
    """
    held = np.flatnonzero(dataset.sites == site)
    rng = numpy_generator(seed, "data/sheet", client=site)
    rows = held[every_label_first(dataset.targets[held], min(per_site, MAX_IMAGES), rng)]
    files = read_table(dataset.root / SAMPLES, ("source",), "fedscene data ingest")["source"]
    captions = [_caption(dataset, row, files[row]) for row in rows]
    absent = int((dataset.targets[held].sum(axis=0) == 0).sum())
    none = f", {absent} of {len(dataset.classes)} labels without any" if absent else ""
    title = f"{shortened(site)}: {len(rows)} of {len(held)} images{none}"
    contact_sheet((dataset.images[row].transpose(1, 2, 0) for row in rows), captions, title, path)


def every_label_first(targets: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of at most ``count`` images that show as many labels as so many can, int64; no row comes twice.

    From the rarest label to the most frequent (ties: the first column), an image of each that no chosen image shows
    yet; then others at random.

    Args:
        targets: [n, C], not zero where image i has label c.
        count: How many rows, if there are so many.
        rng: Source of the choice.
    """
    present = np.asarray(targets) != 0
    order = rng.permutation(len(present))
    frequency = present.sum(axis=0)
    chosen: list[int] = []
    for label in np.argsort(frequency, kind="stable"):
        if len(chosen) < count and frequency[label] and not present[chosen, label].any():
            chosen.append(int(order[present[order, label]][0]))
    rest = order[~np.isin(order, chosen)]
    return np.array([*chosen, *rest[: count - len(chosen)]], dtype=np.int64)


def _caption(dataset: Dataset, row: int, file: str) -> str:
    labels = ", ".join(visible(name) for name, has in zip(dataset.classes, dataset.targets[row], strict=True) if has)
    name = visible(Path(file).name)
    short = name if len(name) <= _FILE_LETTERS else f"{name[: _FILE_LETTERS - 9]}…{name[-8:]}"
    return f"{dataset.splits[row]}, {short}\n{labels or 'no label'}"


def _write(sheet: np.ndarray, title: str, texts: list[tuple[float, float, str, str, str]], path: Path) -> None:
    from matplotlib.transforms import Bbox

    height, width = sheet.shape[:2]
    with new_figure(path, height / DPI, width / DPI) as figure:
        figure.figimage(sheet)
        longest = (width - 2 * _MARGIN) // 14
        figure.text(_MARGIN / width, 1 - 16 / height, one_line(title, longest), va="top", fontsize=10, weight="bold")
        for x, y, line, colour, align in texts:
            made = figure.text(x / width, 1 - y / height, line, fontsize=6.5, color=colour, va="top", ha=align)
            left = x if align == "left" else x - _TILE / 2
            made.set_clip_box(Bbox.from_bounds(left, 0, _TILE + _GAP - 4, height))
            made.set_clip_on(True)


def _tile(image: np.ndarray) -> np.ndarray:
    """The image as uint8 [h, w, 3] with max(h, w) at most ``_TILE``."""
    from PIL import Image

    assert image.dtype == np.uint8, image.dtype
    tile = Image.fromarray(np.ascontiguousarray(image)).convert("RGB")
    longest = max(tile.size)
    if longest <= _TILE // 2:
        tile = tile.resize([side * (_TILE // longest) for side in tile.size], Image.Resampling.NEAREST)
    else:
        tile = tile.resize([max(1, round(side * _TILE / longest)) for side in tile.size], Image.Resampling.LANCZOS)
    return np.asarray(tile)


def _lines(caption: str) -> list[str]:
    """A caption's lines, none wider than a tile; the last ends in an ellipsis when there were more than fit."""
    lines: list[str] = []
    for part in caption.splitlines():
        line = ""
        for word in part.split():
            while word:
                fits = _fitting(word, _LETTERS - (_width(line) + 1 if line else 0))
                if fits < len(word) and line:
                    lines, line = [*lines, line], ""  # on a line of its own
                    continue
                line, word = f"{line} {word[:fits]}" if line else word[:fits], word[fits:]
        lines.append(line)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], lines[_LINES - 1][: _LETTERS - 1] + "…"]
    return [one_line(line, _LETTERS + 1) for line in lines]


def _width(text: str) -> int:
    """Letters that the text is wide; a Chinese one counts for two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _fitting(word: str, width: int) -> int:
    """How many of a word's letters fit into ``width``."""
    used = 0
    for number, letter in enumerate(word):
        used += _width(letter)
        if used > width:
            return number
    return len(word)
