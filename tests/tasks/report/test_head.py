"""The head of a report: results, kind of problem, aggregator."""

import json

import pytest

from flows.settings.schema import as_values, validate
from tasks.report.head import head_section, settings_section
from tests.support.fabricated import CLASSES, fabricated_record

RUN = {"run_id": "r", "classes": CLASSES, "seed": 1}


def head(run=RUN, settings=None, metrics=None):
    record = fabricated_record(1)
    record.metrics = record.metrics if metrics is None else metrics
    return head_section(run, settings or {}, [record], 0.5)


@pytest.mark.parametrize("kind", ["multi_label", "single_label"])
def test_it_names_the_kind_of_problem(kind):
    text = head(RUN | {"kind": kind})
    assert f"| kind of problem | {kind.replace('_', '-')} |" in text and "| kind |" not in text
    assert "| kind of problem | multi-label |" in head(), "a run of an earlier release"


def test_it_names_the_aggregator_with_its_settings_unless_it_is_the_mean():
    values = {"aggregation": {"name": "trimmed_mean", "trimmed_mean": {"trim": 0.3}}}
    settings = as_values(validate(values | {"method": {"name": "fedavg"}}, "test"))
    assert "| aggregator | trimmed_mean (trim=0.3) |" in head(settings=json.loads(json.dumps(settings)))
    assert "aggregator" not in head(settings=as_values(validate({}, "test"))), "the mean"
    assert "| aggregator | median |" in head(settings={"aggregation": {"name": "median", "median": {}}})


def test_it_names_the_transforms_of_updates():
    values = {"aggregation": {"client_transforms": [{"name": "clip_norm", "max_norm": 5}]}}
    text = head(settings=as_values(validate(values, "test")))
    assert "| transforms at the client | clip_norm (max_norm=5" in text and "transforms at the server" not in text


def test_a_single_label_run_without_the_protocol_global_has_accuracy_in_its_head():
    text = head(metrics={"local/accuracy/mean": 0.5})
    assert "| accuracy, round 1 |" in text and "macro AP" not in text


def test_labels_below_the_threshold_are_explained():
    assert "score of 0.5 or more" in head(metrics={"macro_ap": 0.4, "micro_recall": 0.0, "micro_precision": 0.0})
    assert "score of 0.5 or more" not in head()


def test_passwords_are_hidden():
    text = settings_section({"seed": 7, "tracking": {"uri": "http://me:secret@host"}})
    assert "secret" not in text and "| (top) | seed=7 |" in text and "uri=http://" in text
