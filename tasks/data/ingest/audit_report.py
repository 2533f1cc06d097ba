"""The report of an audit: tables for the terminal and for Markdown, and a contact sheet of unused images."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from models.files import write_text
from tasks.core.names import visible, visible_name
from tasks.data.images.decode import DecodeError, decode
from tasks.data.ingest.audit import Audit, Row
from tasks.data.ingest.manifest import FILE as MANIFEST
from tasks.data.ingest.manifest import REASONS, write_manifest
from tasks.data.ingest.similar_labels import similar_names
from tasks.data.source.sample import STATUSES
from tasks.data.statistics.contact_sheet import MAX_IMAGES, contact_sheet
from tasks.plotting.markdown import markdown_table, safe_cell

AUDIT = "audit"  # folder of a data set with the report on its source
REPORT, CONTACT_SHEET = AUDIT_FILES = ("audit.md", "quarantined.png")
_MAX_ROWS = 300  # of a Markdown table; the manifest has all rows
_MAX_PATHS = 4  # of a group in a table
_THUMBNAIL_SIDE = 192  # pixels, on the contact sheet
# Reasons of images without pixels that may be decoded
_WITHOUT_PIXELS = frozenset(
    {"unreadable", "empty", "not_an_image", "flat", "truncated", "too_large", "multi_frame", "bad_mode"}
)
_KINDS = {"bytes": "same bytes", "pixels": "same pixels", "near": "near-duplicates"}


@dataclass(frozen=True)
class ReportTable:
    """A table of the report: title, column headings, and rows of text, the most relevant first."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def write_audit(audit: Audit, folder: Path) -> list[Path]:
    """Write ``audit.md``, ``manifest.parquet`` and, if any image is quarantined, ``quarantined.png``.

    Args:
        audit: The audit.
        folder: Created if it is missing; files of these names are replaced.

    Returns:
        The files, ``audit.md`` first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sheet = _write_contact_sheet(audit, folder / CONTACT_SHEET)
    write_manifest(audit.rows, folder / MANIFEST)
    write_text(folder / REPORT, _markdown(audit, sheet is not None))
    return [folder / REPORT, *([sheet] if sheet else []), folder / MANIFEST]


def summary_line(findings: dict[str, Any]) -> str:
    """Return in one line what can be used."""
    parts = [
        _count(findings["images"], "usable image"),
        _count(len(findings["sites"]), "site"),
        _count(sum(count > 0 for count in findings["labels"].values()), "label"),
        f"{findings['negatives']} negative",
        f"{findings['unlabelled']} unlabelled"
        + (f" ({findings['unlabelled_kept']} of them usable)" if findings["unlabelled_kept"] else ""),
        f"{findings['bad']} unusable (a share of {findings['bad_share']:.3f}, allowed {findings['max_bad_share']:g})",
    ]
    return ", ".join(parts)


def labels_without_images(labels: Mapping[str, int]) -> str:
    """Return a line on the labels that no usable image has, "" if there are none."""
    empty = [name for name, count in labels.items() if not count]
    if not empty or len(empty) == len(labels):
        return ""
    shown = ", ".join(empty[:8]) + (f" and {len(empty) - 8} more" if len(empty) > 8 else "")
    return f"no usable image has {'this label' if len(empty) == 1 else 'these labels'}: {shown}"


def verdict(findings: dict[str, Any]) -> str:
    """Return what an ingest would do with the source; the reason is ``problem``."""
    if not findings["usable"]:
        return "An ingest would refuse it:"
    return "An ingest would accept it." if findings["images"] else "The images are sound, but training needs labels."


def report_tables(audit: Audit) -> list[ReportTable]:
    """Return the tables that have rows."""
    found = audit.findings
    tables = [
        _reasons(audit.rows, found["counts"]["reason"]),
        ReportTable("Labels (usable images with each)", ("label", "images"), _pairs(found["labels"])),
        ReportTable(
            "Unknown labels",
            ("label, images, nearest known label, files",),
            [(line,) for line in found["unknown_lines"]],
        ),
        ReportTable("Aliases", ("label as found", "uses"), _pairs(found["aliases"])),
        ReportTable("Sites", ("site", "usable images"), _pairs(found["sites"])),
        ReportTable("Unlabelled images that stay", ("site", "unlabelled images"), _pairs(found["unlabelled_sites"])),
        ReportTable("Splits given by the source", ("split", "usable images"), _pairs(found["splits"])),
        _sizes(found["sizes"]),
        _repeated(found["repeated"]),
        _files("Not usable", [row for row in audit.rows if row["status"] == "quarantined"]),
        _files("Repairs and warnings", [row for row in audit.rows if row["status"] == "fixed" or _has_warning(row)]),
    ]
    return [
        ReportTable(table.title, table.heads, [tuple(map(visible, row)) for row in table.rows])
        for table in tables
        if table.rows
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _pairs(counts: dict[str, int]) -> list[tuple[str, str]]:
    return [(visible_name(name), str(count)) for name, count in counts.items()]


def _has_warning(row: Row) -> bool:
    return row["status"] == "ok" and bool(row["detail"])


def _reasons(rows: Sequence[Row], counts: dict[str, int]) -> ReportTable:
    status = {row["reason"] or "ok": row["status"] for row in rows}
    order = sorted(counts, key=lambda reason: STATUSES.index(status[reason]))
    lines = [(status[name], name, str(counts[name]), REASONS["" if name == "ok" else name]) for name in order]
    return ReportTable("All files by status and reason", ("status", "reason", "files", "means"), lines)


def _sizes(sizes: dict[str, dict[str, Any]]) -> ReportTable:
    heads = ("pixels", "smallest", "median", "largest", "smallest in", "largest in")
    keys = ("min", "median", "max", "smallest", "largest")
    return ReportTable("Sizes", heads, [(side, *(str(some[key]) for key in keys)) for side, some in sizes.items()])


def _repeated(groups: Sequence[dict[str, Any]]) -> ReportTable:
    lines = []
    for group in groups:
        paths, across = group["paths"], []
        across += [f"sites {', '.join(group['sites'][:4])}"] * (len(group["sites"]) > 1)
        across += [f"splits {', '.join(group['splits'])}"] * (len(group["splits"]) > 1)
        across += [f"labels {' | '.join(group['labels'][:3])}"] * (len(group["labels"]) > 1)
        more = f", and {len(paths) - _MAX_PATHS} more" if len(paths) > _MAX_PATHS else ""
        lines.append((_KINDS[group["kind"]], ", ".join(paths[:_MAX_PATHS]) + more, "; ".join(across)))
    return ReportTable("Duplicate images", ("how", "files", "differ in"), lines)


def _files(title: str, rows: Iterable[Row]) -> ReportTable:
    lines = [(row["reason"] or "ok", row["path"], row["detail"]) for row in _in_turn(rows)]
    return ReportTable(title, ("reason", "file", "detail"), lines)


def _in_turn(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield one row of each reason, then the next of each, so that a frequent reason does not hide a rare one."""
    by_reason: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_reason[row["reason"]].append(row)
    for some in zip_longest(*by_reason.values()):
        yield from (row for row in some if row is not None)


def _markdown(audit: Audit, sheet: bool) -> str:
    found = audit.findings
    parts = [
        f"# Audit of {safe_cell(found['path'])}",
        f"Read as {found['format']}" + (f": {safe_cell(found['why'])}." if found["why"] else "."),
        f"{summary_line(found)}.",
        *filter(
            None,
            map(safe_cell, [labels_without_images(found["labels"]), *similar_names(found["labels"], found["sites"])]),
        ),
        verdict(found) if found["usable"] else f"{verdict(found)}\n\n{_quoted(found['problem'])}",
    ]
    for table in report_tables(audit):
        shown = markdown_table(table.heads, table.rows[:_MAX_ROWS])
        more = len(table.rows) - _MAX_ROWS
        parts += [f"## {table.title}", shown + (f"\n\nand {more} more, see {MANIFEST}" if more > 0 else "")]
    if sheet:
        parts += ["## Unused images", f"![unused images that can be decoded]({CONTACT_SHEET})"]
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"    {visible(line)}" for line in text.splitlines())


def _write_contact_sheet(audit: Audit, path: Path) -> Path | None:
    """Write the quarantined images that can be decoded; return ``None``, and no file, if there are none."""
    path.unlink(missing_ok=True)
    root = audit.source.root if audit.source.root.is_dir() else audit.source.root.parent
    images: list[np.ndarray] = []
    captions: list[str] = []
    rows = [r for r in audit.rows if r["status"] == "quarantined" and r["width"] and r["reason"] not in _WITHOUT_PIXELS]
    limits = replace(audit.settings.limits, min_side=1, enough=0)
    for row in _in_turn(rows) if audit.source.reader.KIND != "none" else ():
        if len(images) == MAX_IMAGES:
            break
        try:
            images.append(_small(decode(root / row["path"], limits).image))
        except DecodeError:
            continue  # an image inside a container, or a file name that is not UTF-8; the tables list it
        captions.append(f"{row['reason']}\n{Path(row['path']).name}")
    if not images:
        return None
    title = f"{len(images)} of {len(rows)} unused images"
    contact_sheet(iter(images), captions, title, path)
    return path


def _small(image: np.ndarray) -> np.ndarray:
    from PIL import Image

    small = Image.fromarray(image)
    small.thumbnail((_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))
    return np.asarray(small)
