"""The manifest: one row for every input file, with a status and a reason from a closed list.

``REASONS`` is that list. Each code belongs to one status, so counting codes is counting what happened. When a file
had several faults or repairs, the row's ``reason`` is the first that was met and ``detail`` names the rest.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from models.files import replacing_file
from tasks.data.source.sample import STATUSES

REASONS: dict[str, str] = {
    # ok
    "": "used as it is",
    "unlabelled": "image of a source without labels: checked, but never part of a data set",
    "annotation": "annotation file, read together with its image",
    "split_list": "list of the images of a split, read",
    "metadata": "file that names labels, splits or sites, read",
    # fixed
    "exif": "image turned upright by its EXIF orientation",
    "cmyk": "CMYK or YCCK image converted to RGB",
    "gray16": "16-bit grey image scaled to 8 bits (divided by 257, or as ingest.gray16 says)",
    "alpha": "transparent image laid over the background colour",
    "bad_metadata": "damaged EXIF, XMP, profile or comment left aside; the pixels are whole",
    "alpha_unused": "transparency that would hide the whole image (0 throughout): the colours were taken",
    "gray16_low": "16-bit grey whose values all fit 8 bits: taken as 8-bit",
    "preview": "TIFF with smaller copies of its image: the image was taken",
    "mpo": "phone image with embedded further images: the first was taken",
    "encoding": "annotation decoded from another encoding than UTF-8 or than it declares",
    "erased": "annotation with objects that are marked deleted: those do not count",
    "odd_box": "a box is missing a side, inverted, of zero area or outside the image; its label was kept",
    "near_name": "listed, or annotated, under a name that differs in case, %20 or the like: the only file it can mean",
    "label_list": "labels written as a program's list, as ['a', 'b']: read as its items",
    "repeated": "listed more than once with the same content: merged",
    # quarantined
    "unreadable": "the file cannot be opened (rights, dangling link, disk)",
    "empty": "zero bytes",
    "not_an_image": "the content is no image of a kind that is read; the detail names the kind and the way out",
    "flat": "a conversion would leave one colour of a image; the detail names the setting that decides",
    "truncated": "the header is that of an image, but the pixels cannot be decoded completely",
    "too_large": "more pixels than max_pixels",
    "too_small": "a side shorter than min_side",
    "multi_frame": "an animation or several pages",
    "bad_mode": "a pixel format for which the conversion to 8-bit RGB would be a guess",
    "bad_xml": "annotation file that cannot be parsed, has an object without a name, or is of another kind than VOC",
    "unsafe_xml": "annotation file with entities or external references",
    "bad_text": "annotation text that cannot be read, or a label index out of range",
    "bad_annotation": "image whose annotation file cannot be used",
    "annotation_unused": "annotation file that is not used; the row of its image says why",
    "no_annotation": "image without an annotation: unlabelled, never a negative",
    "no_image": "annotation without an image",
    "dangling": "annotation that belongs to no listed image",
    "doubtful": "listed without annotations, while some belong to no listed image and may be its own: no negative",
    "no_site": "file outside every site's folder",
    "ambiguous_pair": "several images or several annotations of one name",
    "unknown_label": "image with a label that is neither declared nor an alias",
    "duplicate": "the same bytes with the same labels as an earlier file",
    "duplicate_conflict": "the same bytes as another file, with other labels",
    # ignored
    "hidden": "hidden or system file",
    "litter": "thumbnail, bin, index or unfinished copy that a NAS, a desktop or a tool has left",
    "excluded": "left out by ingest.include or ingest.exclude, or the annotation of such an image",
    "mask": "mask beside a photograph of its name, left out (ingest.companions)",
    "copy": "second copy of an image: in a format that is not read, a backup, or what its link leads to",
    "not_listed": "image that no list names, left out because ingest.unlisted is ignore",
    "other": "a kind of file that the reader does not use",
    "negative": "image without any label, left out because keep_negatives is off",
}

#: Quarantine codes that count towards ``max_bad_share``. An image and its annotation are one input and count once,
#: on the image's row; an exact duplicate is no defect.
COUNTED_BAD = frozenset(
    {
        "unreadable", "empty", "not_an_image", "flat", "truncated", "too_large", "too_small", "multi_frame", "bad_mode",
        "bad_annotation", "no_annotation", "no_image", "dangling", "doubtful", "no_site",
        "unknown_label",
        "ambiguous_pair", "duplicate_conflict",
    }
)  # fmt: skip

FILE = "manifest.parquet"


def reason_counts(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Count the rows of each reason, most frequent first; plain ``ok`` is counted as ``"ok"``."""
    counts = Counter(row["reason"] or "ok" for row in rows)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def write_manifest(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the rows as Parquet: path, status, reason, site, labels, width, height, sha256, detail.

    ``labels`` is null for what has none (unlabelled images, lists), and an empty list for a negative.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for row in rows:
        assert row["status"] in STATUSES, row
        assert row["reason"] in REASONS, row
    schema = pa.schema(
        [
            ("path", pa.string()),
            ("status", pa.string()),
            ("reason", pa.string()),
            ("site", pa.string()),
            ("labels", pa.list_(pa.string())),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("sha256", pa.string()),
            ("detail", pa.string()),
        ]
    )
    table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)
    with replacing_file(path) as beside:
        pq.write_table(table, beside)
