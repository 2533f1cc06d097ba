"""FLAIR's facts about one image, whichever file holds them, and the JSON that comes with the images."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from models.errors import UserError
from tasks.data.formats.shared.tree import Entry
from tasks.data.text.read_text import Encodings, TextError, decode_text, normalize

#: A partition's name -> the split. FLAIR's README says both val and dev.
PARTITIONS = {"train": "train", "val": "val", "validation": "val", "dev": "val", "test": "test"}


@dataclass(frozen=True, slots=True)
class Record:
    """An image as it is listed.

    Attributes:
        image: Its id, "" when there is none.
        user: Its owner, "" if none is named.
        partition: As written; "" when none is named.
        labels: ``()`` when the list is empty, ``None`` when there is none.
        fault: Why the record cannot be used, "" when it can.
    """

    image: str
    user: str
    partition: str
    labels: tuple[str, ...] | None
    fault: str = ""


def checked_record(image: str, user: str, partition: str, labels: Iterable[Any] | None, fault: str = "") -> Record:
    """Build a record: labels are texts and each counts once, the partition is a known one."""
    found = None if labels is None else list(labels)
    if not fault and not all(isinstance(label, str) and normalize(label) for label in found or ()):
        fault = "a label is no text"
    if not fault and partition and partition not in PARTITIONS:
        fault = f"the partition {partition!r} is none of {', '.join(PARTITIONS)}"
    if found is None or fault:
        return Record(image, user, partition, None, fault)
    # sys.intern: one object for each label and user, not one for each image
    names = tuple(dict.fromkeys(sys.intern(normalize(label)) for label in found))
    return Record(image, sys.intern(user), sys.intern(partition), names)


def load_json(entry: Entry, key: str, encoding: str | None = None) -> tuple[list[Record | None], str]:
    """Read ``labels_and_metadata.json``, a list of ``{user_id, image_id, labels, fine_grained_labels, partition}``.

    Args:
        entry: The file.
        key: Which of the two lists of labels counts.
        encoding: Its encoding when it is not UTF-8, if the user says so.

    Returns:
        A record for each entry, ``None`` for an entry that is no object; and the encoding when that needed a repair.

    Raises:
        UserError: It cannot be read or is no list.
    """
    try:
        text, encoding = decode_text(entry.path.read_bytes(), entry.path, Encodings(encoding))
        # Objects become records at once: 430,000 dictionaries would take a gigabyte.
        data = json.loads(text, object_hook=lambda found: _record(found, key))
    except (OSError, TextError, ValueError, RecursionError) as error:
        raise UserError("cannot read the metadata", where=entry.path, found=error) from error
    if not isinstance(data, list) or not any(isinstance(item, Record) for item in data):
        raise UserError("not FLAIR's metadata", where=entry.path, expected="a list with an object for each image")
    return [item if isinstance(item, Record) else None for item in data], encoding


def _record(found: dict[str, Any], key: str) -> Record:
    labels = found.get(key)
    image, user, partition = (_name(found.get(name)) for name in ("image_id", "user_id", "partition"))
    if labels is None or isinstance(labels, list):
        return checked_record(image, user, partition, labels)
    return checked_record(image, user, partition, None, f"{key} is no list")


def _name(value: Any) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return normalize(str(value)) if whole or isinstance(value, str) else ""
