"""Records with former metric names are read with the present ones."""

import dataclasses
import json

import pytest
import torch

from tasks.core.former_names import current_metric_names, former_file_name
from tasks.core.records import ModelRef, RoundState, read_round
from tasks.core.store import Store
from tasks.report.sample_predictions import FILE, load_predictions
from tests.support.fabricated import fabricated_record


@pytest.mark.parametrize("prefix", ["personal_", "pooled_"])
def test_metrics_of_clients_are_read_under_the_names_of_the_protocols(prefix):
    record = fabricated_record(1)
    record.per_client = {"a": {"local/macro_ap": 0.5, "local/images": 3.0, "global/macro_ap": 0.9}}
    record.metrics |= {"global/macro_ap/mean": 0.9, "local/loss/worst_decile": 2.0, "local/loss/population_std": 0.1}
    former = json.loads(json.dumps(record.as_dict()))
    former["per_client"] = {"a": {"macro_ap": 0.5, "images": 3.0, f"{prefix}macro_ap": 0.9}}
    for name in ("global/macro_ap/mean", "local/loss/worst_decile", "local/loss/population_std"):
        del former["metrics"][name]
    former["metrics"] |= {
        f"client/{prefix}macro_ap/mean": 0.9,
        "client/loss/worst_decile": 2.0,
        "client/loss/std": 0.1,  # of the clients as a population; the present std is that of a sample
    }
    assert read_round(former, 1) == record
    assert read_round(json.loads(json.dumps(record.as_dict())), 1) == record


def test_other_names_and_odd_values_are_kept():
    odd = {"metrics": {"pooled_variance": 1.0}, "per_client": {"a": 3}, "round": 1}
    assert current_metric_names(odd) == odd
    assert current_metric_names({"metrics": [], "per_client": None}) == {"metrics": [], "per_client": None}


def test_the_models_and_tensors_of_a_former_round_are_its_state():
    record = fabricated_record(1)
    refs = [ModelRef(f"{k}.safetensors", f"digest{k}", k) for k in range(6)]
    values = json.loads(json.dumps([dataclasses.asdict(ref) for ref in refs]))
    former = json.loads(json.dumps(record.as_dict()))
    del former["state"]
    former |= {"version": 1, "model": values[0], "prototypes": values[1:3], "groups": {"a": 1, "b": 0}}
    former |= {"client_states": {"a": values[3]}, "overlays": {"b": values[4]}, "server_state": values[5]}
    state = read_round(former, 1).state
    assert state == RoundState(
        models={"global": refs[0], "cluster/0": refs[1], "cluster/1": refs[2]},
        private={"a": refs[3]},
        personal={"b": refs[4]},
        server={"method": refs[5]},
        cluster_of={"a": 1, "b": 0},
    )
    assert state.cluster_models == refs[1:3] and state.personalised == ["b"]
    least = {key: value for key, value in former.items() if key in ("round", "model")}
    assert read_round(least, 1).state == RoundState.starting_from(refs[0])


def test_the_sample_predictions_of_an_earlier_release_are_found(tmp_path):
    former = former_file_name(FILE)
    assert former != FILE
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    Store(tmp_path).put_state(former, {"images": images, "truths": torch.ones(2, 5), "scores": torch.ones(2, 5)})
    assert load_predictions(tmp_path).scores.shape == (2, 5)
    assert former_file_name("run.json") == "run.json"
