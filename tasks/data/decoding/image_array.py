"""``images.npy``: the pixels of the kept images, copied from the decoded chunks."""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from models.files import replacing_file
from tasks.data.decoding.chunk_files import chunk_pixels, damaged_chunk, pixels_digest


def write_images(rows: list[dict[str, Any]], cache: Path, path: Path, size: int) -> None:
    """Write the pixels of these rows, in their order, chunk by chunk, so that memory stays constant.

    Args:
        rows: Manifest rows with ``slot``, (chunk, row in it).
        cache: Folder of the decoded chunks.
        path: The file, uint8 [N, 3, size, size].
        size: Side in pixels.

    Raises:
        UserError: The pixels of a chunk are not those that were decoded.
    """
    shape = (len(rows), 3, size, size)
    with replacing_file(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for name, group in groupby(rows, key=lambda row: row["slot"][0]):
            some = list(group)
            pixels = chunk_pixels(cache, name)[[row["slot"][1] for row in some]]
            for image, row in zip(pixels, some, strict=True):
                if pixels_digest(image) != row["pixels"]:
                    raise damaged_chunk(cache, name, f"other pixels than were decoded of {row['path']}")
            file.write(pixels.data)
