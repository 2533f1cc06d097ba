"""Counts the files of a source that a data set could not use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.core.json_files import read_json
from tasks.data.dataset import SUMMARY
from tasks.data.ingest.audit_report import AUDIT, REPORT
from tasks.data.ingest.manifest import FILE as MANIFEST


def unusable(dataset: Path) -> dict[str, Any]:
    """Return ``files`` (all), ``unusable`` (reason -> number quarantined), and where the ``list`` of them is.

    Raises:
        UserError: The data set's summary is missing or damaged.
    """
    summary = read_json(dataset / SUMMARY, "ingest the data again (fedscene data ingest)")
    found = {"files": summary.get("files", 0), "unusable": summary.get("unusable", {})}
    return found | {"list": str(dataset / AUDIT / REPORT), "manifest": str(dataset / MANIFEST)}


def unusable_line(found: Mapping[str, Any], where: bool = True) -> str:
    """Return ``130 of 400 input files cannot be used: 90 not_an_image, ...``, "" if all can be used."""
    reasons = found.get("unusable") or {}
    if not reasons:
        return ""
    frequent = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    counts = ", ".join(f"{count} {reason}" for reason, count in frequent)
    line = f"{sum(reasons.values())} of {found['files']} input files cannot be used: {counts}"
    return f"{line}; they are listed in {found['list']}" if where else line
