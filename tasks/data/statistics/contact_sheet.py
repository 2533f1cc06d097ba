"""Contact sheets: small images with captions in one PNG, of any images or of a site."""

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

MAX_IMAGES = 120  # on a contact sheet
_TILE, _GAP, _MARGIN, _LINE, _HEAD = 192, 18, 24, 19, 56  # pixels
_COLUMNS, _CHARACTERS, _LINES = 8, 27, 4  # characters in a line of a caption, lines of a caption
_FILE_CHARACTERS = 22  # of a file name
_NO_IMAGE = "no image"


def contact_sheet(
    images: np.ndarray | Iterable[np.ndarray | None], captions: Sequence[str], title: str, path: Path
) -> None:
    """Write at most 120 images, 8 in a row, each in a tile of 192 pixels a side; the title gives the total.

    Images of at most 96 pixels are enlarged by an integer factor without smoothing, others are resized to the tile,
    keeping their aspect ratio.

    Args:
        images: uint8 [k, 3, H, W] as one array; or an iterable of uint8 [H, W, 3] or [H, W], ``None`` for an image
            that could not be read. An iterator is read image by image, so they need not fit into memory together.
        captions: One for each image; may have line breaks. Truncated after 4 lines of 27 characters.
        title: Above the sheet.
        path: The PNG file.
    """
    shown = min(len(captions), MAX_IMAGES)
    rows, columns = max(1, math.ceil(shown / _COLUMNS)), min(_COLUMNS, max(shown, 4))
    lines = [caption_lines(caption) for caption in captions[:shown]]
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
    """Write a contact sheet of a site's images with split, file and labels.

    Args:
        dataset: The data set.
        site: One of its sites.
        per_site: Most images to show; never more than 120.
        seed: Chooses the images, together with the site's name.
        path: The PNG file.
    """
    at_site = np.flatnonzero(dataset.sites == site)
    rng = numpy_generator(seed, "data/sheet", client=site)
    rows = at_site[every_label_first(dataset.targets[at_site], min(per_site, MAX_IMAGES), rng)]
    files = read_table(dataset.root / SAMPLES, ("source",), "fedscene data ingest")["source"]
    captions = [_caption(dataset, row, files[row]) for row in rows]
    absent = int((dataset.targets[at_site].sum(axis=0) == 0).sum())
    none = f", {absent} of {len(dataset.classes)} labels without any" if absent else ""
    title = f"{shortened(site)}: {len(rows)} of {len(at_site)} images{none}"
    contact_sheet((dataset.images[row].transpose(1, 2, 0) for row in rows), captions, title, path)


def every_label_first(targets: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Choose at most ``count`` images that together show as many labels as possible; return distinct rows, int64.

    From the rarest label to the most frequent (ties: the first column), choose an image of each label that no chosen
    image has yet; then others at random.

    Args:
        targets: [n, C], non-zero where image i has label c.
        count: Number of rows; fewer if there are fewer images.
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
    short = name if len(name) <= _FILE_CHARACTERS else f"{name[: _FILE_CHARACTERS - 9]}…{name[-8:]}"
    return f"{dataset.splits[row]}, {short}\n{labels or ('no label' if dataset.annotated[row] else 'unlabelled')}"


def _write(sheet: np.ndarray, title: str, texts: list[tuple[float, float, str, str, str]], path: Path) -> None:
    from matplotlib.transforms import Bbox

    height, width = sheet.shape[:2]
    with new_figure(path, height / DPI, width / DPI) as figure:
        figure.figimage(sheet)
        longest = (width - 2 * _MARGIN) // 14
        figure.text(_MARGIN / width, 1 - 16 / height, one_line(title, longest), va="top", fontsize=10, weight="bold")
        for x, y, line, colour, align in texts:
            written = figure.text(x / width, 1 - y / height, line, fontsize=6.5, color=colour, va="top", ha=align)
            left = x if align == "left" else x - _TILE / 2
            written.set_clip_box(Bbox.from_bounds(left, 0, _TILE + _GAP - 4, height))
            written.set_clip_on(True)


def _tile(image: np.ndarray) -> np.ndarray:
    """Resize an image to uint8 [h, w, 3] with max(h, w) at most ``_TILE``."""
    from PIL import Image

    assert image.dtype == np.uint8, image.dtype
    tile = Image.fromarray(np.ascontiguousarray(image)).convert("RGB")
    longest = max(tile.size)
    if longest <= _TILE // 2:
        tile = tile.resize([side * (_TILE // longest) for side in tile.size], Image.Resampling.NEAREST)
    else:
        tile = tile.resize([max(1, round(side * _TILE / longest)) for side in tile.size], Image.Resampling.LANCZOS)
    return np.asarray(tile)


def caption_lines(caption: str) -> list[str]:
    """Break a caption into lines no wider than a tile; the last one ends in an ellipsis if lines were cut."""
    lines: list[str] = []
    for part in caption.splitlines():
        line = ""
        for word in part.split():
            while word:
                fits = _fitting(word, _CHARACTERS - (_width(line) + 1 if line else 0))
                if fits < len(word) and line:
                    lines, line = [*lines, line], ""  # continue on a new line
                    continue
                line, word = f"{line} {word[:fits]}" if line else word[:fits], word[fits:]
        lines.append(line)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], lines[_LINES - 1][: _CHARACTERS - 1] + "…"]
    return [one_line(line, _CHARACTERS + 1) for line in lines]


def _width(text: str) -> int:
    """Return the width of a text in characters; an East Asian wide one counts as two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _fitting(word: str, width: int) -> int:
    """Count the characters of a word that fit into ``width``."""
    used = 0
    for number, character in enumerate(word):
        used += _width(character)
        if used > width:
            return number
    return len(word)
