"""An evaluation with a threshold per class: tuned on validation images, used for test images, kept with the model."""

import numpy as np
import pytest

from flows.run.inputs import require_validation
from flows.run.results import model_factory
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.network import build_network, predict_logits
from tasks.core.round_state import RoundState
from tasks.data.dataset import load_dataset
from tasks.evaluation.evaluate import evaluate_model
from tasks.evaluation.metrics import multilabel_metrics
from tasks.evaluation.thresholds import thresholds_of, tuned_thresholds
from tests.support.rounds import NARROW


@pytest.fixture
def evaluated(make_run):
    """``evaluated(thresholds)``: the context, the model, and what an evaluation of it gives."""

    def call(thresholds):
        settings = EvaluationSettings(thresholds=thresholds, threshold=0.4)
        context, start = make_run(thresholds, objective="bce", network=NARROW, evaluation=settings)
        return context, start, evaluate_model(context, RoundState.starting_from(start))

    return call


def test_test_metrics_are_those_of_thresholds_that_validation_images_chose(evaluated, tiny_data):
    context, start, found = evaluated("per_class")
    dataset = load_dataset(tiny_data.dataset)
    model, everything = build_network(context, context.open_store(), start), dataset.lazy_images(np.arange(64))
    scores = context.problem.probabilities(predict_logits(context, model, everything))
    val, test = dataset.indices("val"), dataset.indices("test")
    chosen = tuned_thresholds(scores[val], dataset.targets[val], 0.4)
    assert list(thresholds_of(found["per_class"]).values()) == pytest.approx(chosen.tolist())
    assert len(set(chosen.round(6).tolist())) > 1
    expected = multilabel_metrics(scores[test], dataset.targets[test], context.evaluation, chosen)
    for name in ("mean_f1", "micro_f1", "cf1", "macro_ap"):
        assert found["metrics"][name] == pytest.approx(expected[name]), name
    fixed = multilabel_metrics(scores[val], dataset.targets[val], context.evaluation)
    assert found["metrics"]["val_mean_f1"] == pytest.approx(fixed["mean_f1"]), "no figure of the images they come from"


def test_without_the_setting_nothing_changes(evaluated):
    _, _, found = evaluated("fixed")
    assert thresholds_of(found["per_class"]) == {}
    _, _, tuned = evaluated("per_class")
    same = [name for name in found["metrics"] if name.endswith(("_ap", "loss")) or name.startswith("val_")]
    assert same and {name: found["metrics"][name] for name in same} == {name: tuned["metrics"][name] for name in same}
    assert found["metrics"]["mean_f1"] != tuned["metrics"]["mean_f1"]


def test_an_exported_network_carries_them(evaluated):
    context, start, found = evaluated("per_class")
    thresholds = thresholds_of(found["per_class"])
    metadata = model_factory(context, start, thresholds)()[2]
    assert metadata["thresholds"] == thresholds and list(thresholds) == metadata["labels"]
    assert "its threshold in thresholds" in metadata["output"]
    plain = model_factory(context, start)()[2]
    assert "thresholds" not in plain and "0.4" in plain["output"]


def test_settings_that_need_what_is_not_there_are_refused(tiny_data):
    single = ["ingest.kind=single_label", "objective.name=ce", "model.name=resnet18", "method.name=fedavg"]
    with pytest.raises(UserError, match="per_class is not for single-label data"):
        load_settings(None, ["tiny"], [*single, "evaluation.thresholds=per_class"])
    dataset = load_dataset(tiny_data.dataset)
    without = type(dataset)(**vars(dataset) | {"splits": np.where(dataset.splits == "val", "train", dataset.splits)})
    settings = load_settings(None, ["tiny"], ["evaluation.thresholds=per_class"])
    require_validation(settings, dataset, "multi_label")
    with pytest.raises(UserError, match=r"evaluation\.thresholds needs validation images"):
        require_validation(settings, without, "multi_label")
    stop = load_settings(None, ["tiny"], ["federation.stop.patience=2", "federation.stop.metric=val_accuracy"])
    with pytest.raises(UserError, match="no such metric of the validation images") as caught:
        require_validation(stop, dataset, "multi_label")
    assert "val_macro_ap" in str(caught.value) and "val_loss" in str(caught.value)
