"""Ingest against bare decoding with Pillow, in the same number of processes."""

import sys
from pathlib import Path

from benchmarks.harness.contestant import Contestant, Metrics, Run
from benchmarks.workloads import About, Options, Prepared
from benchmarks.workloads.fedscene_runs import environment, python

IMAGES = {64: 20_000, 640: 1000}
SIZE = 64  # side of the stored images


def side_of(name: str) -> int:
    """Return the side in the name."""
    return int(name.rpartition("-")[2])


def about(name: str) -> About:
    """Return what the page says."""
    side = side_of(name)
    text = (
        f"{IMAGES[side]:,} JPEG files, {side} pixels wide, quality 85, in a folder for each class, become a data set "
        f"of {SIZE} pixels. The bare loop opens, decodes and resizes every file with Pillow in as many processes, and "
        "keeps nothing; the ingest also hashes and checks files, finds duplicates, splits, and writes the data set."
    )
    figures = {"seconds": "seconds", "images_s": "images/s", "cpu_s": "CPU-s"}
    return About(f"Ingest, {side} pixels", text, "bare", figures, ("images_s",))


def prepare(name: str, options: Options) -> Prepared:
    """Render the images; return the contestants."""
    side = side_of(name)
    count = 200 if options.quick else IMAGES[side]
    work = options.work / name
    folder = work / f"{count}"
    work.mkdir(parents=True, exist_ok=True)
    if not (folder / "images").is_dir():
        options.say(f"  {count} images")
        code = (
            "import sys; from pathlib import Path; from benchmarks.ingest import render_all; "
            "render_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))"
        )
        python(work, "-c", code, folder / "images", count, side)

    def contestant(name: str, title: str, what: str) -> Contestant:
        command = [sys.executable, "-m", "benchmarks.bare", what, str(folder / "images"), str(SIZE)]

        def collect(run: Run, place: Path) -> Metrics:
            del place
            assert run.end is not None
            seconds = run.result["seconds"]
            return {"seconds": seconds, "images_s": count / seconds, "cpu_s": run.end.cpu}

        return Contestant(name, title, lambda _: command, collect, environment(work))

    found = [contestant("bare", "bare loop with Pillow", "decode"), contestant("ours", "FedScene's ingest", "ingest")]
    return Prepared(found, {"images": count, "side": side})
