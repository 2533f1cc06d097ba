"""The manifest: one row for every input file, with a status and a reason from a closed list.

Each code of ``REASONS`` belongs to one status. If a file has several faults or repairs, the row's ``reason`` is the
first and ``detail`` names the rest.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from models.files import replacing_file
from tasks.data.source.sample import STATUSES

REASONS: dict[str, str] = {
    # ok
    "": "used without changes",
    "unlabelled": "image without an annotation: an unlabelled training image if ingest.unlabelled is keep",
    "annotation": "annotation file, read together with its image",
    "split_list": "list of the images of a split, read",
    "metadata": "file that names labels, splits or sites, read",
    # fixed
    "exif": "image transposed by its EXIF orientation",
    "cmyk": "CMYK or YCCK image converted to RGB",
    "gray16": "16-bit grey image scaled to 8 bits (divided by 257, or as ingest.gray16 says)",
    "alpha": "transparent image composited over the background colour",
    "bad_metadata": "damaged EXIF, XMP, profile or comment ignored; the pixels are intact",
    "alpha_unused": "transparency that would hide the whole image (0 throughout): the colours were used",
    "gray16_low": "16-bit grey image whose values all fit 8 bits: read as 8-bit",
    "preview": "TIFF with smaller copies of its image: the full image was used",
    "mpo": "phone image with further embedded images: the first was used",
    "encoding": "annotation in another encoding than UTF-8, or than it declares",
    "erased": "annotation with objects marked deleted, which do not count",
    "odd_box": "invalid box (a side missing, inverted, of zero area or outside the image); its label was kept",
    "near_name": "listed or annotated under a name that differs in case, %20 or the like; no other file can be meant",
    "label_list": "labels written as a list such as ['a', 'b'] by a program: read as its items",
    "repeated": "listed more than once with the same content: merged",
    # quarantined
    "unreadable": "the file cannot be opened (permissions, dangling link, disk)",
    "empty": "zero bytes",
    "not_an_image": "the content is not an image of a supported format; the detail names the format and what to do",
    "flat": "a conversion would leave a single colour; the detail names the setting that decides",
    "truncated": "the header is that of an image, but the pixels cannot be decoded completely",
    "too_large": "more pixels than max_pixels",
    "too_small": "a side shorter than min_side",
    "multi_frame": "an animation or several pages",
    "bad_mode": "a pixel format for which the conversion to 8-bit RGB would be a guess",
    "bad_xml": "annotation file that cannot be parsed, has an object without a name, or is not VOC",
    "unsafe_xml": "annotation file with entities or external references",
    "bad_text": "annotation text that cannot be read, or a label index out of range",
    "bad_annotation": "image whose annotation file cannot be used",
    "annotation_unused": "annotation file that is not used; its image's row states the reason",
    "no_annotation": "image without an annotation: unlabelled, never a negative",
    "no_image": "annotation without an image",
    "dangling": "annotation that belongs to no listed image",
    "doubtful": "listed without annotations while some belong to no listed image and may be its own: not a negative",
    "no_site": "file outside every site's folder",
    "ambiguous_pair": "several images or several annotations with one name",
    "unknown_label": "image with a label that is neither declared nor an alias",
    "duplicate": "the same bytes with the same labels as an earlier file",
    "duplicate_conflict": "the same bytes as another file, with other labels",
    # ignored
    "hidden": "hidden or system file",
    "litter": "thumbnail, bin, index or unfinished copy left by a NAS, a desktop or a tool",
    "excluded": "left out by ingest.include or ingest.exclude, or the annotation of such an image",
    "mask": "mask next to a photograph of the same name, left out (ingest.companions)",
    "copy": "copy of an image: in a format that is not read, a backup, or the target of a link",
    "not_listed": "image that no list names, left out because ingest.unlisted is ignore",
    "other": "a kind of file that the reader does not use",
    "negative": "image without any label, left out because keep_negatives is off",
    "unlabelled_skipped": "image without an annotation, left out: ingest.unlabelled is skip, or it is of val or test",
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
    table = pa.Table.from_pydict({name: [row[name] for row in rows] for name in schema.names}, schema)
    with replacing_file(path) as temporary:
        pq.write_table(table, temporary)
