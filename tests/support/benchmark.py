"""A small benchmark of synthetic single-label images for tests of ``fedscene replicate``."""

from pathlib import Path
from typing import Any

from tasks.core.yaml_text import dump_yaml

SETTINGS: dict[str, Any] = {
    "ingest": {"source": "synthetic", "image_size": 32, "synthetic": {"set": "scrap", "images": 60, "sites": 3}},
    "partition": {"scheme": "iid", "clients": 3, "min_size": 2},
    "model": {"name": "simple_cnn"},
    "method": {"name": "fedavg"},
    "train": {"epochs": 1, "lr": 0.01},
    "federation": {"engine": "local", "workers": 1},
    "report": {"images": 0},
}
BENCHMARK: dict[str, Any] = {
    "title": "Two cells",
    "kind": "benchmark",
    "sources": {"a": {"where": "somewhere/README.md", "paper": "A paper"}, "b": {"where": "elsewhere"}},
    "images": {"scrap": {"title": "synthetic scrap", "train": 42, "test": 12, "settings": SETTINGS}},
    "protocols": {
        "plain": {"images": "scrap", "about": "One epoch.", "rounds": 3, "seeds": [0, 1], "small": {"rounds": 1}},
    },
    "cells": {"C1": "scrap", "C2": "later"},
    "rows": {
        "C1-fedavg": {
            "cell": "C1", "title": "FedAvg", "protocol": "plain",
            "published": [{"value": 60, "source": "a"}, {"value": 55, "std": 1, "source": "b"}],
        },
        "C1-fedprox": {
            "cell": "C1", "title": "FedProx", "protocol": "plain", "settings": {"method": {"name": "fedprox"}},
            "published": [{"value": 50, "source": "a"}, {"value": 10, "source": "b", "fault": "diverged"}],
        },
        "C2-ditto": {
            "cell": "C2", "title": "Ditto", "protocol": "plain", "not_yet": "later",
            "published": [{"value": 90, "source": "a"}],
        },
    },
    "claims": [
        {"kind": "difference", "cell": "C1", "better": "C1-fedavg", "worse": "C1-fedprox", "at_least": 1},
        {"kind": "difference", "cell": "C2", "better": "C2-ditto", "worse": "C1-fedavg", "at_least": 9},
        {"kind": "rounds", "cell": "C1", "faster": "C1-fedprox", "slower": "C1-fedavg", "target_round": 2,
         "at_most": 0.75},
    ],
}  # fmt: skip


def written(folder: Path, **changes: Any) -> str:
    """Write the benchmark with changes into a folder; returns the file's name."""
    (folder / "cells.yaml").write_text(dump_yaml(BENCHMARK | changes))
    return str(folder / "cells.yaml")
