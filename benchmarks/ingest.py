"""Compare the ingest with a bare Pillow loop: images and CPU seconds, and their ratios, measured in one run.

    python benchmarks/ingest.py --images 2000 --side 640
    python benchmarks/ingest.py --images 100000 --side 64 --keep images

The bare loop opens, decodes (at full size) and resizes every file with Pillow, in as many processes as the ingest, and
keeps nothing. The ingest also hashes and checks files, finds duplicates, splits, and writes the data set. The order of
the two alternates. The images are synthetic (set ``scrap``) and saved as JPEG, quality 85.
"""

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image


def render_site(folder: Path, number: int, images: int, side: int) -> None:
    """Render a part of the images, a folder per class; 64-pixel images are enlarged to ``side``, with noise."""
    from tasks.data.formats.synthetic import scrap
    from tasks.data.formats.synthetic.settings import SyntheticSettings

    settings, site = SyntheticSettings(set="scrap", images=10**6, sites=8), f"site-{number + 1}"
    labels = scrap.SET.sample_labels(settings, 1, site, images).argmax(axis=1)
    rng = np.random.default_rng(number)
    for i, label in enumerate(labels):
        image = Image.fromarray(scrap.SET.render(settings, 1, site, i, 64))
        if side != 64:
            large = np.asarray(image.resize((side, side * 3 // 4)), dtype=np.int16)
            image = Image.fromarray((large + rng.integers(-12, 13, large.shape)).clip(0, 255).astype(np.uint8))
        path = folder / scrap.SET.classes[label] / f"{number}-{i:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=85)


def render_all(folder: Path, images: int, side: int) -> None:
    """Render all images, in as many processes as there are cores."""
    parts = [images // 8 + (i < images % 8) for i in range(8)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        list(pool.map(render_site, [folder] * 8, range(8), parts, [side] * 8))


def bare(paths: list[str], size: int) -> int:
    """Decode and resize only."""
    total = 0
    for path in paths:
        with Image.open(path) as image:
            small = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        total += small.size[0]
    return total


def bare_seconds(folder: Path, size: int, workers: int) -> float:
    """Return the seconds of the bare loop."""
    start = time.perf_counter()
    paths = [str(path) for path in folder.rglob("*.jpg")]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        chunks = [paths[i : i + 256] for i in range(0, len(paths), 256)]
        list(pool.map(bare, chunks, [size] * len(chunks)))
    return time.perf_counter() - start


def ingest_seconds(folder: Path, size: int, workers: int) -> tuple[float, str]:
    """Return the seconds of the ingest and the data set's digest."""
    from tasks.data.ingest.ingest import IngestSettings, ingest

    settings = IngestSettings(source="folder", path=folder, image_size=size)
    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        start = time.perf_counter()
        summary = ingest(settings, Path(out) / "dataset", seed=0, workers=workers)
        return time.perf_counter() - start, summary["digest"]


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def turns(folder: Path, options: argparse.Namespace, workers: int) -> Iterator[dict[str, tuple[float, float]]]:
    """Measure both, ``options.repeat`` times in alternating order; yield the seconds and CPU seconds of each."""
    for turn in range(options.repeat):
        found = {}
        for name in ("bare loop", "ingest")[:: 1 if turn % 2 == 0 else -1]:
            began = cpu_seconds()
            if name == "ingest":
                wall, digest = ingest_seconds(folder, options.size, workers)
            else:
                wall = bare_seconds(folder, options.size, workers)
            found[name] = (wall, cpu_seconds() - began)
        rates = (f"{name} {options.images / wall:.0f} images/s {cpu:.2f} CPU-s" for name, (wall, cpu) in found.items())
        print(f"{', '.join(rates)}, data set {digest[:12]}")
        yield found


def main() -> None:
    """Render the images, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--side", type=int, default=640, help="width of the JPEG files; the height is 3/4 of it")
    parser.add_argument("--size", type=int, default=64, help="side of the stored images")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="render into this folder and keep it; reuse its images")
    options = parser.parse_args()
    workers = len(os.sched_getaffinity(0))
    folder = (options.keep or Path(tempfile.mkdtemp())) / "images"
    if not folder.is_dir():
        render_all(folder, options.images, options.side)
    found = list(turns(folder, options, workers))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    speed, cpu = (statistics.median(turn["bare loop"][n] / turn["ingest"][n] for turn in found) for n in (0, 1))
    print(f"ingest / bare loop: {speed:.2f} of its speed, {cpu:.2f} by CPU seconds")
    print(f"medians of {options.repeat}, {workers} processes")
    print(f"peak memory of the main process {peak:.0f} MB")
    if not options.keep:
        shutil.rmtree(folder.parent)


if __name__ == "__main__":
    main()
