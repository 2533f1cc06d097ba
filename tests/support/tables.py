"""A small table of two rows for tests of ``fedscene replicate``."""

from pathlib import Path

from flows.papers import replicate
from tasks.core.yaml_text import dump_yaml

FOLDER = Path(replicate.__file__).parents[1] / "tables"
BASE = {
    "ingest": {"synthetic": {"images": 48, "sites": 3}, "image_size": 32},
    "partition": {"min_size": 4},
    "model": {"backbone": {"width": 0.125}, "fmman": {"layers": 1}},
    "report": {"images": 0},
    "train": {"epochs": 1, "lr": 0.01},
    "federation": {"engine": "local"},
}
TABLE = {
    "title": "A table",
    "source": "A paper, table 1",
    "data": "synthetic",
    "rows": {
        "FedAvg": {"settings": {"method": {"name": "fedavg"}, "model": {"name": "resnet18"}}},
        "FMMAN": {"local_trainings_per_round": 2},
    },
    "paper": {"FMMAN": [50, 40, 30, 20]},
    "scales": {"small": {"settings": BASE, "rounds": 2, "seeds": [5], "note": "Small."}},
    "datasets": {"synthetic": {"small": {"title": "synthetic images"}}},
}


def written(folder: Path, **changes) -> str:
    """Write the table with changes into a folder; returns the file's name."""
    (folder / "mine.yaml").write_text(dump_yaml(TABLE | changes))
    return str(folder / "mine.yaml")


class RowsDone:
    """Progress of a table that keeps the rows that ended, and whether they did without an error."""

    def __init__(self):
        self.done = []

    def row_begins(self, number, total, run): ...

    def row_done(self, run, result, failed):
        self.done.append((run.row, failed is None))

    def counted(self, done, total): ...

    def stage(self, round_, name, clients): ...

    def clients_done(self, count): ...

    def round_done(self, record, found=False): ...

    def note(self, text): ...
