"""The objective in effect by kind of problem, and combinations that are refused before any work starts."""

import pytest

from flows.settings.files import load_settings
from models.errors import UserError
from models.registry import NETWORKS

SCRAP = "ingest.synthetic.set=scrap"


def refused(*overrides):
    with pytest.raises(UserError) as caught:
        load_settings(None, ["tiny"], ["method.name=fedavg", *overrides])
    return str(caught.value)


@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "xuesgcn"])
def test_the_default_objective_is_the_networks_own_and_ce_for_single_labels(network):
    sets = ["method.name=fedavg", f"model.name={network}", "ingest.image_size=64"]
    multi, single = load_settings(None, ["tiny"], sets), load_settings(None, ["tiny"], [*sets, SCRAP])
    assert multi.objective_name == NETWORKS[network].objectives[0]
    assert single.objective_name == "ce"
    assert single.objective_for("multi_label") == multi.objective_name


def test_the_setting_overrides_the_kind_of_the_source():
    assert load_settings(None, ["tiny"], [SCRAP, "ingest.kind=multi_label"]).objective_name == "fmman"
    assert load_settings(None, ["tiny"], ["ingest.kind=single_label"]).objective_name == "ce"


def test_cross_entropy_on_multi_label_data_is_refused():
    text = refused("objective.name=ce", "model.name=resnet18")
    assert "objective.name ce is not for multi-label data" in text and "bce" in text


@pytest.mark.parametrize("objective", ["fmman", "fedlgt", "label_mask_training"])
def test_objectives_that_mask_labels_are_refused_on_single_label_data(objective):
    text = refused(SCRAP, f"objective.name={objective}")
    assert f"objective.name {objective} is not for single-label data" in text and "ce" in text


def test_a_network_for_multi_label_data_only_is_refused_on_single_label_data():
    text = refused(SCRAP, "method.name=xuesgcn", "model.name=xuesgcn")
    assert "model.name xuesgcn cannot be trained on single-label data" in text and "resnet18" in text
