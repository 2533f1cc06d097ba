"""Warnings of metrics near chance, of small test sets, and of sites that take no part in training."""

from pathlib import Path

import numpy as np
import pytest

from tasks.data.partition.participation import absent_sites_line, site_counts, site_means, untrained_sites
from tasks.evaluation.chance_comparison import comparison_rows, warnings
from tests.support.image_trees import ingested, tree
from tests.support.voc_trees import make_image


def test_metrics_near_or_below_chance_are_warned_of():
    metrics = {"macro_ap": 0.63, "chance/macro_ap": 0.30, "micro_ap": 0.63, "chance/micro_ap": 0.58}
    metrics |= {"interval/micro_ap/low": 0.55, "interval/micro_ap/high": 0.70}
    metrics |= {"cf1": 0.894, "chance/cf1": 0.905, "images": 300.0, "val_images": 300.0}
    lines = warnings(metrics)
    assert len(lines) == 2
    assert lines[0].startswith("micro AP 0.630 is no clear gain over 0.580"), "0.58 is within the interval"
    assert lines[1].startswith("CF1 0.894 is below 0.905")
    remarks = {row[0]: row[-1] for row in comparison_rows(metrics)}
    assert remarks == {"macro AP": "", "micro AP": "near chance", "CF1": "worse than chance"}


def test_a_loss_above_its_chance_level_is_worse_than_chance():
    rows = comparison_rows({"loss": 0.4, "chance/loss": 0.5})
    assert rows[0][-1] == ""
    assert comparison_rows({"loss": 0.6, "chance/loss": 0.5})[0][-1] == "worse than chance"


@pytest.mark.parametrize(("images", "val", "count"), [(11.0, 200.0, 1), (11.0, 8.0, 2), (50.0, 50.0, 0)])
def test_small_test_and_validation_sets_are_warned_of(images, val, count):
    lines = warnings({"images": images, "val_images": val})
    assert len(lines) == count
    assert all("too few" in line for line in lines)


def test_metrics_without_a_chance_level_have_no_row():
    assert comparison_rows({"macro_ap": 0.5}) == []
    assert warnings({"macro_ap": float("nan"), "chance/macro_ap": float("nan")}) == []


@pytest.fixture(scope="module")
def with_test_only_sites(tmp_path_factory):
    """Make four sites: north and south train, west and east hold test images only."""
    from tasks.data.partition import PartitionSettings, partition

    base = tmp_path_factory.mktemp("sites")
    names = [f"{site}/train/{label}/{i}.png" for site in ("north", "south") for label in "ab" for i in range(4)]
    names += [f"{site}/test/{label}/{i}.png" for site in ("north", "west", "east") for label in "ab" for i in range(2)]
    root = tree(base / "in", {name: make_image(i) for i, name in enumerate(names)})
    ingested(root, base / "dataset", site={"rule": "folder"}, split={"scheme": "given", "val": 0})
    partition(base / "dataset", PartitionSettings(scheme="natural", min_size=1), base / "clients", 0)
    return base


def test_sites_without_training_images_are_counted(with_test_only_sites):
    from tasks.data.clients import load_clients
    from tasks.data.dataset import load_dataset

    dataset = load_dataset(with_test_only_sites / "dataset")
    clients = load_clients(with_test_only_sites / "clients")
    assert site_counts(dataset, clients) == {"east": 0, "north": 8, "south": 8, "west": 0}
    assert untrained_sites(dataset, clients) == {"east": 4, "west": 4}
    table = (with_test_only_sites / "clients" / "heterogeneity.md").read_text()
    assert "2 of 4 sites take no part in training" in table
    assert "east, west" in table


def test_site_means_separate_sites_that_train_from_those_that_do_not():
    rows = {
        "a": {"macro_ap": 0.8, "train_images": 5.0},
        "b": {"macro_ap": 0.6, "train_images": 9.0},
        "c": {"macro_ap": 0.4, "train_images": 0.0},
        "d": {"macro_ap": float("nan"), "train_images": 0.0},
    }
    found = site_means(rows, "macro_ap")
    assert found["site_mean/trained/macro_ap"] == pytest.approx(0.7)
    assert found["site_mean/trained/sites"] == 2
    assert found["site_mean/never_trained/macro_ap"] == 0.4
    assert found["site_mean/never_trained/sites"] == 1
    assert site_means({"a": rows["a"], "b": rows["b"]}, "macro_ap") == {}, "all sites train: there is one mean"


def test_of_many_absent_sites_some_are_named():
    line = absent_sites_line([f"site {i}" for i in range(40)], 90)
    assert line.startswith("40 of 90 sites")
    assert "site 7 and 32 more" in line
    assert "site 8" not in line
    assert absent_sites_line([], 3) == ""


@pytest.mark.slow
def test_a_run_reports_absent_sites_and_chance_levels(with_test_only_sites, tmp_path, monkeypatch):
    """Check the terminal's notes, the record, the report's tables and the summary."""
    from rich.console import Console

    from flows.cli.main import show_scores
    from flows.federate import federate
    from flows.federation.progress import Quiet
    from flows.run.inputs import DataPaths
    from flows.settings.files import load_settings

    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    settings = load_settings(
        None,
        ("tiny",),
        ["method.name=fedavg", "model.name=resnet18", "train.epochs=1",
         "federation.rounds=1", "federation.workers=1", "tracking.enabled=false"],
    )  # fmt: skip
    notes = []
    progress = Quiet()
    progress.note = notes.append
    data = DataPaths(with_test_only_sites / "dataset", with_test_only_sites / "clients")
    summary = federate(settings, data, progress=progress)
    text = "\n".join(notes)
    assert "2 of 4 sites take no part in training" in text
    assert "east, west" in text
    assert "12 test images are too few" in text
    assert "no validation images" in text

    record = summary.records[-1]
    assert {site: row["train_images"] for site, row in record.per_site.items()} == {"east": 0, "north": 8, "west": 0}
    assert record.metrics["chance/accuracy"] == 0.5
    assert "interval/accuracy/low" in record.metrics
    assert np.isfinite(record.metrics["site_mean/never_trained/accuracy"])

    report = Path(summary.report).read_text()
    trained, unseen = report.split("## Sites, round 1")[1].split("## Sites that take no part, round 1")
    assert "north" in trained
    assert "west" not in trained
    assert "west" in unseen.split("##")[0]
    assert "chance level" in report

    shown = Console(width=120, record=True)
    with shown.capture() as lines:
        show_scores(summary.records, shown)
    assert "chance level" in lines.get()
    assert "warning: 12 test images are too few" in lines.get()
