"""Records with former metric names are read with the present ones."""

import json

import torch

from tasks.core.former_names import current_metric_names, former_file_name
from tasks.core.records import read_round
from tasks.core.store import Store
from tasks.report.sample_predictions import FILE, load_predictions
from tests.support.fabricated import fabricated_record


def test_metrics_of_personal_models_are_read_under_their_present_name():
    record = fabricated_record(1)
    record.per_client = {"a": {"macro_ap": 0.5, "personal_macro_ap": 0.9}}
    record.metrics["client/personal_macro_ap/mean"] = 0.9
    former = json.loads(json.dumps(record.as_dict()).replace("personal_", "pooled_"))
    assert "pooled_macro_ap" in former["per_client"]["a"]
    assert read_round(former, 1) == record


def test_other_names_and_odd_values_are_kept():
    odd = {"metrics": {"pooled_variance": 1.0}, "per_client": {"a": 3}, "round": 1}
    assert current_metric_names(odd) == odd
    assert current_metric_names({"metrics": [], "per_client": None}) == {"metrics": [], "per_client": None}


def test_the_sample_predictions_of_an_earlier_release_are_found(tmp_path):
    former = former_file_name(FILE)
    assert former != FILE
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    Store(tmp_path).put_state(former, {"images": images, "truths": torch.ones(2, 5), "scores": torch.ones(2, 5)})
    assert load_predictions(tmp_path).scores.shape == (2, 5)
    assert former_file_name("run.json") == "run.json"
