"""Trees of images made for a test, and the data set that an ingest makes of them."""

from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from tasks.data.dataset import load_dataset
from tasks.data.ingest.ingest import IngestSettings, ingest
from tests.support.voc_trees import encoded, make_image, put

#: EXIF orientation -> how the stored pixels become upright, by the EXIF standard.
UPRIGHT = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: a.transpose(1, 0, 2)[:, ::-1],  # row 0 is the right side: turn clockwise
    7: lambda a: a.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda a: a.transpose(1, 0, 2)[::-1],
}


def solid(colour, size=(32, 32), mode="RGB"):
    return Image.new(mode, size, colour)


def with_orientation(image, orientation, kind="PNG"):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image, kind, exif=exif)


def tree(root, files):
    """Write ``{name: bytes or image}``; an image becomes a PNG."""
    for name, content in files.items():
        put(root / name, content if isinstance(content, bytes) else encoded(content))
    return root


def pairs(root, annotations, first=0):
    """Write an image of 40 x 30 for each of ``{name: XML bytes}``."""
    for number, (name, xml) in enumerate(annotations.items(), first):
        tree(root, {f"{name}.png": make_image(number), f"{name}.xml": xml})
    return root


def ingested(root, out, source="folder", **settings):
    """Ingest a tree; return manifest rows, stored pixels [S, S, 3], splits, labels and sites by path, the summary."""
    chosen = {"image_size": 32, "max_bad_share": 1.0} | settings
    summary = ingest(IngestSettings.model_validate({"source": source, "path": root} | chosen), out, seed=0)
    samples = pq.read_table(out / "samples.parquet").to_pylist()
    data = load_dataset(out)
    return SimpleNamespace(
        rows={row["path"]: SimpleNamespace(**row) for row in pq.read_table(out / "manifest.parquet").to_pylist()},
        pixels={row["source"]: np.moveaxis(data.images[i], 0, 2).astype(int) for i, row in enumerate(samples)},
        splits={row["source"]: row["split"] for row in samples},
        labels={row["source"]: list(row["labels"]) for row in samples},
        sites={row["source"]: row["site"] for row in samples},
        summary=summary,
    )


OK = ("ok", "")
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200)


def bad(reason):
    return ("quarantined", reason)


def fixed(reason):
    return ("fixed", reason)
