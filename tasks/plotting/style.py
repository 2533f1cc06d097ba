"""One style for all plots, as PNG files. Matplotlib's object interface: no pyplot, no display.

A colour has one meaning in a plot; markers and line styles repeat it.
"""

import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.files import replacing_file
from tasks.core.names import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

# Okabe and Ito's palette, distinguishable with every common colour blindness
BLUE, ORANGE, GREEN, PURPLE, SKY, RED = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
INK, GREY, PALE = "#222222", "#8A8A8A", "#EDEDED"
WIDTH, DPI = 9.0, 150
# Label names may be Chinese; matplotlib's own font has no such glyphs.
FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "SimHei",
    "Microsoft YaHei",
)
MAX_LABEL_LENGTH = 26


@contextmanager
def new_figure(path: Path, height: float, width: float = WIDTH) -> "Iterator[Figure]":
    """Yield a figure in the project's style and write it to ``path``; glyphs that no font has are logged.

    Args:
        path: The PNG file; its folder is created if it is missing.
        height: In inches; an inch is 150 pixels.
        width: In inches.
    """
    import matplotlib as mpl
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    known = set(font_manager.get_font_names())
    style: dict[Any, Any] = {
        "font.family": ["DejaVu Sans", *(name for name in FONTS if name in known)],
        "font.size": 9, "axes.titlesize": 11, "axes.titlelocation": "left", "axes.titleweight": "bold",
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
        "grid.color": PALE, "axes.edgecolor": GREY, "axes.labelcolor": INK, "text.color": INK,
        "xtick.color": INK, "ytick.color": INK, "lines.linewidth": 1.8,
    }  # fmt: skip
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        with warnings.catch_warnings(record=True) as caught, replacing_file(path) as temporary:
            warnings.simplefilter("always")
            figure.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
    _log_missing_glyphs(path, [str(warning.message) for warning in caught])


def _log_missing_glyphs(path: Path, messages: list[str]) -> None:
    """Log matplotlib's warnings of missing glyphs in one line, its other warnings unchanged."""
    found = {message: re.match(r"Glyph (\d+) ", message) for message in messages}
    glyphs = sorted({chr(int(match[1])) for match in found.values() if match})
    if glyphs:
        shown = "".join(glyphs[:20]) + ("..." if len(glyphs) > 20 else "")
        log.warning("%s: no font here has %s; install one of: %s", path.name, shown, ", ".join(FONTS))
    for message in (message for message, match in found.items() if not match):
        log.warning("%s: %s", path.name, message)


def one_line(name: str, length: int = MAX_LABEL_LENGTH) -> str:
    """Return an external name as a label of at most ``length`` visible characters on one line, never a formula."""
    shown = shortened(name, length).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # legends omit labels that start with _


def shortened(name: str, length: int = MAX_LABEL_LENGTH) -> str:
    """Return an external name on one visible line; of a long one its beginning and its end, which often differs."""
    line = visible(name)
    end = (length - 1) // 3
    return line if len(line) <= length else f"{line[: length - 1 - end]}…{line[len(line) - end :]}"


def span(rounds: Sequence[int]) -> tuple[float, float]:
    """Return the limits of an axis of rounds."""
    return min(rounds) - 0.6, max(rounds) + 0.6


def integer_ticks(axes: "Axes") -> None:
    """Put ticks of the x axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))
