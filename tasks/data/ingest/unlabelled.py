"""Unlabelled images: all for training, and none that would give away an image of val or test."""

from collections import defaultdict
from typing import Any

from tasks.data.formats.shared.tree import split_from_folders


def place_unlabelled(rows: list[dict[str, Any]], scheme: str) -> list[dict[str, Any]]:
    """Put the unlabelled images into the train split; return the rows that stay.

    An unlabelled image is left out if an annotated image of its group is in val or test, as a group is never divided,
    or if the source itself counts it there and its splits are used. The manifest says so.

    Args:
        rows: The images that stay, annotated ones with their split; those without labels have the source's split.
        scheme: ``ingest.split.scheme``.
    """
    splits: dict[str, set[str]] = defaultdict(set)  # group -> splits of its annotated images
    for row in rows:
        if row["labels"] is not None and row["group"]:
            splits[row["group"]].add(row["split"])
    stay = []
    for row in rows:
        if row["labels"] is None and not _may_train(row, splits.get(row["group"], set()), scheme):
            row["status"], row["reason"], row["slot"] = "ignored", "unlabelled_skipped", None
        else:
            row["split"] = "train" if row["labels"] is None else row["split"]
            stay.append(row)
    return stay


def _may_train(row: dict[str, Any], beside: set[str], scheme: str) -> bool:
    """Check whether an unlabelled image may be trained on; else say why in its row."""
    given = row["split"] or split_from_folders(row["path"])
    if scheme == "given" and given in ("val", "test"):
        why = f"the source counts it as {given}"
    elif beside <= {"train"}:
        return True
    else:
        why = f"an image of its group is in {' and '.join(sorted(beside - {'train'}))}"
    row["detail"] = "; ".join(filter(None, (why, row["detail"])))
    return False
