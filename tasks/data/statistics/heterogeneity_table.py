"""The values of ``heterogeneity.statistics`` as rows of text, for the terminal and for Markdown."""

from typing import Any

from tasks.core.names import visible_name
from tasks.data.statistics.heterogeneity import distance_by_chance
from tasks.plotting.markdown import markdown_table, safe_cell

HEADS = (
    "images",
    "no label",
    "labels per image",
    "effective classes",
    "labels absent",
    "label distance",
    "pair distance",
    "by chance",
    "undefined pairs",
)
UNLABELLED = "unlabelled"
_NONE = "-"
_NOTE = """\
Distances are to all images together, 0 = the same. Effective classes: exp of the entropy of the label counts.
Label distance: Jensen-Shannon, base 2, with images without a label as one more class. Pair distance (co-occurrence):
weighted root mean square difference of the phi coefficients of label pairs; by chance: approximate distance of a
random subset of the same size. A pair is undefined where no image or every image has one of the labels."""


def heads(figures: dict[str, Any]) -> list[str]:
    """Return the columns of ``difference_rows`` after the name: ``HEADS``, and unlabelled images if there are any."""
    return [HEADS[0], *([UNLABELLED] if _any_unlabelled(figures) else []), *HEADS[1:]]


def difference_rows(figures: dict[str, Any]) -> list[list[str]]:
    """Return a row per client: its name and the columns of ``heads``."""
    total = sum(map(_annotated, figures["clients"].values()))
    extra = _any_unlabelled(figures)
    rows = [_row(client, entry, total) for client, entry in figures["clients"].items()]
    for row, entry in zip(rows, figures["clients"].values(), strict=True):
        row[2:2] = [str(entry[UNLABELLED])] if extra else []
    return rows


def _annotated(entry: dict[str, Any]) -> int:
    """Return a client's images with known labels; earlier releases had no others."""
    return int(entry.get("annotated", entry["images"]))


def _any_unlabelled(figures: dict[str, Any]) -> bool:
    return any(entry.get(UNLABELLED) for entry in figures["clients"].values())


def means(figures: dict[str, Any], what: str) -> list[list[str]]:
    """Return name and value of the statistics over all clients."""
    return [
        ["mean label distance (Jensen-Shannon)", _shown(figures["mean_js_distance"])],
        ["mean pair distance (co-occurrence)", _shown(figures["mean_cooccurrence_distance"])],
        [f"effective number of {what}s by size", f"{figures['effective_clients']:.1f}"],
    ]


def as_markdown(figures: dict[str, Any], classes: list[str], what: str = "client", note: str = "") -> str:
    """Return all statistics as Markdown: a row per client, its images with each label, and the strongest label pairs.

    ``note`` is a sentence on absent clients or sites.
    """
    counts = [
        [visible_name(client), *(str(entry["labels"][name]) for name in classes)]
        for client, entry in figures["clients"].items()
    ]
    parts = [
        f"# How the {what}s differ",
        *([f"**Note:** {safe_cell(note)}."] if note else []),
        markdown_table(["all", "value"], means(figures, what)),
        markdown_table([what, *heads(figures)], difference_rows(figures)),
        _NOTE,
        "## Images with each label",
        markdown_table([what, *map(visible_name, classes)], counts),
        "## Co-occurring labels",
        _pairs(figures["cooccurrence"], classes),
    ]
    return "\n\n".join(parts) + "\n"


def _row(client: str, entry: dict[str, Any], total: int) -> list[str]:
    distance, undefined = entry["cooccurrence_distance"], entry["undefined_pairs"]
    return [
        visible_name(client),
        str(entry["images"]),
        str(entry["negatives"]),
        f"{entry['cardinality']:.2f}",
        f"{entry['effective_classes']:.1f}",
        str(len(entry["labels_without_positives"])),
        _shown(entry["js_distance"]),
        _shown(distance),
        _shown(None if distance is None else distance_by_chance(_annotated(entry), total)),
        _NONE if undefined is None else str(undefined),
    ]


def _shown(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}"


def _pairs(matrix: list[list[float | None]] | None, classes: list[str], most: int = 20) -> str:
    """Return the pairs whose phi over all images is farthest from 0."""
    if matrix is None:
        return "No image has two labels."
    known = [
        (value, classes[i], classes[j])
        for j in range(len(classes))
        for i, value in enumerate(row[j] for row in matrix[:j])
        if value is not None
    ]
    known.sort(key=lambda pair: (-abs(pair[0]), pair[1:]))
    table = markdown_table(
        ["label", "label", "phi"], [[visible_name(a), visible_name(b), f"{value:+.3f}"] for value, a, b in known[:most]]
    )
    return f"{min(most, len(known))} of {len(known)} pairs, farthest from independent first.\n\n{table}"
