"""One look for all plots, as PNG files. Matplotlib's object interface: no pyplot, no display.

One colour means one thing in a plot; signs and line styles say it a second time.
"""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.files import replacing_file
from tasks.core.names import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

# Okabe and Ito's palette, told apart with every common colour blindness
BLUE, ORANGE, GREEN, PURPLE, SKY, RED = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
INK, GREY, PALE = "#222222", "#8A8A8A", "#EDEDED"
WIDTH, DPI = 9.0, 150
# Label names may be Chinese; matplotlib's own font has no such letters.
SCRIPTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "SimHei",
    "Microsoft YaHei",
)
LABEL_LENGTH = 26


@contextmanager
def new_figure(path: Path, height: float, width: float = WIDTH) -> "Iterator[Figure]":
    """A figure in the house's look, written to ``path`` at the end; letters that no font has are named in the log.

    Args:
        path: The PNG file; its folder is made if it is missing.
        height: In inches of 150 pixels.
        width: The same.
    """
    import matplotlib as mpl
    from matplotlib import font_manager
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    known = set(font_manager.get_font_names())
    look: dict[Any, Any] = {
        "font.family": ["DejaVu Sans", *(name for name in SCRIPTS if name in known)],
        "font.size": 9, "axes.titlesize": 11, "axes.titlelocation": "left", "axes.titleweight": "bold",
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
        "grid.color": PALE, "axes.edgecolor": GREY, "axes.labelcolor": INK, "text.color": INK,
        "xtick.color": INK, "ytick.color": INK, "lines.linewidth": 1.8,
    }  # fmt: skip
    with mpl.rc_context(look):
        made = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(made)
        yield made
        with warnings.catch_warnings(record=True) as caught, replacing_file(path) as beside:
            warnings.simplefilter("always")
            made.savefig(beside, format="png", dpi=DPI, metadata={"Software": None})
    _report_letters(path, [str(warning.message) for warning in caught])


def _report_letters(path: Path, messages: list[str]) -> None:
    """One line in the log for all of matplotlib's warnings about letters; other warnings as they are."""
    found = {message: re.match(r"Glyph (\d+) ", message) for message in messages}
    letters = sorted({chr(int(match[1])) for match in found.values() if match})
    if letters:
        shown = "".join(letters[:20]) + ("..." if len(letters) > 20 else "")
        log.warning("%s: no font here has %s; install one of: %s", path.name, shown, ", ".join(SCRIPTS))
    for message in (message for message, match in found.items() if not match):
        log.warning("%s: %s", path.name, message)


def one_line(name: str, length: int = LABEL_LENGTH) -> str:
    """A name from outside as a label: not longer than ``length``, one line, nothing invisible, no formula."""
    shown = shortened(name, length).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # legends leave out what begins with _


def shortened(name: str, length: int = LABEL_LENGTH) -> str:
    """A name from outside in one visible line; of a long one the beginning and the end, which often differs."""
    line = visible(name)
    end = (length - 1) // 3
    return line if len(line) <= length else f"{line[: length - 1 - end]}…{line[len(line) - end :]}"
