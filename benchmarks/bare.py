"""What a machine can do at best, for comparison: read files, average tensors, decode images.

    python -m benchmarks.bare read STORE        read all updates of a store from memory, and nothing else
    python -m benchmarks.bare disk STORE        read them from the disk
    python -m benchmarks.bare copy STORE        read all updates, and write each once
    python -m benchmarks.bare mean STORE        average them with torch in float64, and write the mean
    python -m benchmarks.bare decode IMAGES SIZE
    python -m benchmarks.bare ingest IMAGES SIZE

The last two are the two sides of ``benchmarks/ingest.py``. Each prints one JSON object with the seconds.
"""

import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

BLOCK = 2**23


def read(store: Path) -> float:
    """Read every update into one buffer."""
    began = time.perf_counter()
    buffer = bytearray(BLOCK)
    for path in sorted((store / "updates").iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - began


def disk(store: Path) -> float:
    """Read every update past the system's cache, where the file system allows it."""
    began = time.perf_counter()
    buffer = mmap.mmap(-1, BLOCK)  # begins at a page, as such reads need
    for path in sorted((store / "updates").iterdir()):
        file, done = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0)), 0
        while count := os.preadv(file, [buffer], done):
            done += count
            if count % mmap.PAGESIZE:  # the end
                break
        os.close(file)
    return time.perf_counter() - began


def copy(store: Path) -> float:
    """Read every update and write it to a new file."""
    began = time.perf_counter()
    buffer, target = bytearray(BLOCK), store / "copies"
    target.mkdir()
    view = memoryview(buffer)
    for path in sorted((store / "updates").iterdir()):
        with path.open("rb", buffering=0) as file, (target / path.name).open("wb", buffering=0) as out:
            while count := file.readinto(buffer):
                out.write(view[:count])
    return time.perf_counter() - began


def mean(store: Path) -> float:
    """Average the updates tensor by tensor, weighted by their numbers of images."""
    import torch
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    began = time.perf_counter()
    updates = json.loads((store / "updates.json").read_text())["updates"]
    images = sum(update["samples"] for update in updates)
    total: dict[str, torch.Tensor] = {}
    for update in updates:
        weight = update["samples"] / images
        for name, value in load_file(store / update["model"]["uri"]).items():
            if value.is_floating_point():
                total.setdefault(name, torch.zeros(value.shape, dtype=torch.float64)).add_(value, alpha=weight)
    save_file({name: value.float() for name, value in total.items()}, store / "mean.safetensors")
    return time.perf_counter() - began


def decode(images: Path, size: str) -> float:
    """Decode and resize every image with Pillow, in as many processes as there are cores."""
    from benchmarks.ingest import bare_seconds

    return bare_seconds(images, int(size), len(os.sched_getaffinity(0)))


def ingest(images: Path, size: str) -> float:
    """Ingest every image."""
    from benchmarks.ingest import ingest_seconds

    return ingest_seconds(images, int(size), len(os.sched_getaffinity(0)))[0]


WORK: dict[str, Callable[..., float]] = {
    "read": read,
    "disk": disk,
    "copy": copy,
    "mean": mean,
    "decode": decode,
    "ingest": ingest,
}


def main(work: str, folder: str, *more: str) -> None:
    """Do the work and print its seconds, without those of the imports."""
    print(json.dumps({"seconds": WORK[work](Path(folder), *more)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
