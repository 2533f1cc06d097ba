"""Metrics of the pooled test set against scikit-learn and hand counts."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, precision_score, recall_score

from flows.settings.files import load_settings
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.network import build_network, predict_logits
from tasks.core.problem import MultiLabel
from tasks.core.round_state import RoundState
from tasks.evaluation.evaluate import evaluate_model
from tasks.evaluation.metric_sets import class_rows, metric_set, site_rows
from tasks.evaluation.metrics import (
    average_precision,
    combine,
    multilabel_metrics,
    per_class_table,
)

ZERO = EvaluationSettings(zero_support="zero")
METRICS = metric_set("multi_label")


def random_case(seed, images=60, classes=6, decimals=8, missing=()):
    rng = np.random.default_rng(seed)
    targets = (rng.random((images, classes)) < rng.uniform(0.1, 0.6, classes)).astype(np.uint8)
    targets[:, list(missing)] = 0
    scores = np.clip(0.35 * targets + rng.normal(0.35, 0.25, targets.shape), 0, 1).round(decimals)
    return scores, targets


def expected_metrics(scores, targets):
    """Compute the metrics with scikit-learn on the classes that have positives."""
    used = np.flatnonzero(targets.sum(axis=0) > 0)
    predicted = (scores >= 0.5).astype(int)
    options = {"average": "macro", "zero_division": 0}
    p = precision_score(targets[:, used], predicted[:, used], **options)
    r = recall_score(targets[:, used], predicted[:, used], **options)
    micro = {"average": "micro", "zero_division": 0}
    single = (targets.sum(axis=1) == 1).all()
    accuracy = {"accuracy": accuracy_score(targets.argmax(1), scores.argmax(1))} if single else {}
    return accuracy | {
        "macro_ap": np.mean([average_precision_score(targets[:, c], scores[:, c]) for c in used]),
        "micro_ap": average_precision_score(targets.ravel(), scores.ravel()),
        "macro_precision": p,
        "macro_recall": r,
        "cf1": 2 * p * r / (p + r) if p + r else 0.0,
        "mean_f1": f1_score(targets[:, used], predicted[:, used], **options),
        "micro_precision": precision_score(targets, predicted, **micro),
        "micro_recall": recall_score(targets, predicted, **micro),
        "micro_f1": f1_score(targets, predicted, **micro),
        "mean_prevalence": targets[:, used].mean(),
        "classes_used": len(used),
        "classes_without_positives": targets.shape[1] - len(used),
        "images": len(targets),
    }


@pytest.mark.parametrize(
    "case",
    [
        {"seed": 0},
        {"seed": 1, "decimals": 1},  # ties, also exactly at the threshold
        {"seed": 2, "missing": (1, 4)},
        {"seed": 3, "images": 5, "classes": 20},
        {"seed": 4, "images": 1},
    ],
)
def test_metrics_equal_those_of_scikit_learn(case):
    scores, targets = random_case(**case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = multilabel_metrics(scores, targets)
    assert got == pytest.approx(expected_metrics(scores, targets), abs=1e-12)


def test_without_predictions_precision_and_recall_are_zero():
    scores, targets = random_case(5)
    got = multilabel_metrics(scores * 0.4, targets)
    zero = ["macro_precision", "macro_recall", "cf1", "mean_f1", "micro_precision", "micro_recall", "micro_f1"]
    assert [got[name] for name in zero] == [0.0] * 7
    assert got["macro_ap"] == pytest.approx(multilabel_metrics(scores, targets)["macro_ap"]), "AP needs no threshold"


def test_ap_with_ties_by_hand():
    # At score 0.9: 1 of 2 right, half the positives found; at 0.5: 2 of 4, all found. 0.5 * 1/2 + 0.5 * 2/4 = 0.5
    scores, targets = np.array([[0.9], [0.9], [0.5], [0.5]]), np.array([[1], [0], [0], [1]])
    assert multilabel_metrics(scores, targets)["macro_ap"] == pytest.approx(0.5)


def test_a_class_without_positives_is_in_no_macro_mean():
    scores, targets = random_case(6, missing=(2,))
    others = [c for c in range(6) if c != 2]
    whole, part = multilabel_metrics(scores, targets), multilabel_metrics(scores[:, others], targets[:, others])
    macro = ["macro_ap", "macro_precision", "macro_recall", "cf1", "mean_f1", "mean_prevalence", "classes_used"]
    assert [whole[name] for name in macro] == [part[name] for name in macro]
    assert (whole["classes_used"], whole["classes_without_positives"]) == (5, 1)
    assert math.isnan(class_rows(METRICS, list("abcdef"), scores, targets)["c"]["ap"]), "it is listed, without AP"
    assert whole["micro_precision"] < part["micro_precision"], "its false alarms still count in the micro values"


def test_zero_support_zero_counts_classes_without_positives_as_zero():
    scores, targets = random_case(6, missing=(2, 3))
    got, out = multilabel_metrics(scores, targets, ZERO), multilabel_metrics(scores, targets)
    for name in ("macro_ap", "macro_precision", "macro_recall", "mean_f1", "mean_prevalence"):
        assert got[name] == pytest.approx(out[name] * 4 / 6), name
    # scikit-learn's own macro mean over all classes counts them as 0 too
    predicted = (scores >= 0.5).astype(int)
    assert got["mean_f1"] == pytest.approx(f1_score(targets, predicted, average="macro", zero_division=0))
    p, r = got["macro_precision"], got["macro_recall"]
    assert got["cf1"] == pytest.approx(2 * p * r / (p + r))
    assert (got["classes_used"], got["classes_without_positives"]) == (6, 2)
    micro = ("micro_ap", "micro_f1", "images")
    assert [got[name] for name in micro] == [out[name] for name in micro]
    everywhere = random_case(6)
    assert multilabel_metrics(*everywhere, ZERO) == multilabel_metrics(*everywhere)
    assert math.isnan(multilabel_metrics(scores[:0], targets[:0], ZERO)["macro_ap"]), "no image: nothing to count as 0"


def test_the_three_values_of_zero_support_by_hand():
    """Classes: one found (AP 1, P 1, R 1), one half found (AP 5/6, P 1, R 1/2), one without positives (P = R = 0)."""
    targets = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 0]], dtype=np.uint8)
    scores = np.array([[0.9, 0.8, 0.1], [0.2, 0.4, 0.7], [0.6, 0.3, 0.2]])
    ap = (1 + 5 / 6) / 2  # of the two that have positives
    by_hand = {  # precision, recall, F1 of the classes summed; over how many; macro-AP; classes in it
        "exclude": ((2.0, 1.5, 1 + 2 / 3), 2, ap, 2),
        "zero": ((2.0, 1.5, 1 + 2 / 3), 3, 2 * ap / 3, 3),
        "zero_f1": ((2.0, 1.5, 1 + 2 / 3), 3, ap, 2),
    }
    for value, ((p, r, f1), count, macro_ap, used) in by_hand.items():
        got = multilabel_metrics(scores, targets, EvaluationSettings(zero_support=value))
        assert got["macro_ap"] == pytest.approx(macro_ap) and got["classes_used"] == used, value
        assert got["macro_precision"] == pytest.approx(p / count)
        assert got["macro_recall"] == pytest.approx(r / count)
        assert got["mean_f1"] == pytest.approx(f1 / count)
        assert got["cf1"] == pytest.approx(2 * p * r / (p + r) / count), value
        assert got["mean_prevalence"] == pytest.approx((2 + 2) / 3 / used), "the chance level of macro-AP"
    nothing = multilabel_metrics(scores[:0], targets[:0], EvaluationSettings(zero_support="zero_f1"))
    assert math.isnan(nothing["cf1"])
    assert math.isnan(nothing["macro_ap"])
    assert load_settings(None, ["fedlgt_release"]).evaluation.zero_support == "zero_f1"


def test_cf1_and_mean_f1_differ():
    # Class 0: 1 of 1 predictions right, 2 of 4 found: P 1, R 1/2, F1 2/3. Class 1: 1 of 4 right, 1 of 1 found: F1 2/5.
    # mean_f1 = (2/3 + 2/5) / 2 = 8/15 = 0.53; macro P 5/8, macro R 3/4, cf1 = 2 (5/8)(3/4) / (11/8) = 15/22 = 0.68
    targets = np.array([[1, 1], [1, 0], [1, 0], [1, 0]])
    scores = np.array([[0.9, 0.9], [0.9, 0.9], [0.1, 0.9], [0.1, 0.9]])
    got = multilabel_metrics(scores, targets)
    assert got["mean_f1"] == pytest.approx(8 / 15)
    assert got["cf1"] == pytest.approx(15 / 22)


def test_a_score_at_the_threshold_is_a_prediction():
    assert multilabel_metrics(np.array([[0.5]]), np.array([[1]]))["micro_recall"] == 1.0
    assert multilabel_metrics(np.array([[0.5 - 1e-9]]), np.array([[1]]))["micro_recall"] == 0.0
    higher = EvaluationSettings(threshold=0.6)
    assert multilabel_metrics(np.array([[0.5]]), np.array([[1]]), higher)["micro_recall"] == 0.0
    assert class_rows(METRICS, ["a"], np.array([[0.5]]), np.array([[1]]), higher)["a"]["recall"] == 0.0


@pytest.mark.parametrize("decimals", [8, 1, 0])
def test_average_precision_equals_that_of_scikit_learn(decimals):
    for seed in range(20):
        scores, targets = random_case(seed, images=40, classes=1, decimals=decimals)
        if targets.any():
            expected = average_precision_score(targets[:, 0], scores[:, 0])
            assert average_precision(scores[:, 0], targets[:, 0]) == pytest.approx(expected, abs=1e-12)
    assert math.isnan(average_precision(np.array([0.1, math.nan]), np.array([0, 1]))), "no ranking, no AP"
    assert math.isnan(average_precision(np.array([0.1, 0.2]), np.array([0, 0])))


def test_probabilities_do_not_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = MultiLabel().probabilities(np.array([-2000.0, 0.0, math.log(3), 2000.0], np.float32))
    assert found == pytest.approx([0.0, 0.5, 0.75, 1.0])


def test_the_table_of_one_class_by_hand():
    scores, targets = np.array([[0.9], [0.8], [0.2], [0.6]]), np.array([[1], [0], [1], [1]])
    table = {name: values.tolist() for name, values in per_class_table(scores, targets).items()}
    # order 0.9 hit, 0.8 miss, 0.6 hit, 0.2 hit: AP = (1/1 + 2/3 + 3/4) / 3
    assert table["ap"] == pytest.approx([(1 + 2 / 3 + 3 / 4) / 3])
    assert table["precision"] == table["recall"] == table["f1"] == pytest.approx([2 / 3])
    assert table["support"] == [3.0]
    assert table["prevalence"] == [0.75]


def test_metrics_by_class_and_by_site():
    scores, targets = random_case(7)
    rows = class_rows(METRICS, list("abcdef"), scores, targets)
    assert list(rows) == list("abcdef")
    assert rows["c"]["ap"] == pytest.approx(average_precision_score(targets[:, 2], scores[:, 2]))
    assert rows["c"]["support"] == targets[:, 2].sum()
    sites = np.array(["north", "bay"] * 30)
    by_site = site_rows(METRICS, sites, scores, targets)
    assert list(by_site) == ["bay", "north"]
    here = sites == "bay"
    expected = expected_metrics(scores[here], targets[here])
    assert by_site["bay"] == pytest.approx({name: expected[name] for name in by_site["bay"]})
    assert by_site["bay"]["images"] == 30


@pytest.mark.parametrize("images", [0, 3])
def test_macro_metrics_are_undefined_without_a_positive(images):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = multilabel_metrics(np.full((images, 2), 0.7), np.zeros((images, 2), np.uint8))
    assert got["classes_used"] == 0
    assert got["images"] == images
    defined = [n for n in ("macro_ap", "micro_ap", "macro_precision", "mean_f1", "cf1") if not math.isnan(got[n])]
    assert defined == []


def test_binary_cross_entropy_by_hand_and_without_overflow():
    logits, targets = np.array([[0.0, 2.0]]), np.array([[1, 0]])
    assert MultiLabel().loss(logits, targets) == pytest.approx((math.log(2) + math.log1p(math.exp(2))) / 2)
    assert MultiLabel().loss(np.array([[800.0, -800.0]]), np.array([[0, 1]])) == pytest.approx(800.0)
    assert math.isnan(MultiLabel().loss(np.zeros((0, 2)), np.zeros((0, 2))))


def test_a_model_is_evaluated_on_the_pooled_test_and_validation_images(make_run, tiny_data):
    from tasks.data.dataset import load_dataset

    context, start = make_run(objective="bce", network={"name": "resnet18", "backbone": {"width": 0.125}})
    state = RoundState.starting_from(start)
    out = evaluate_model(context, state)
    dataset = load_dataset(tiny_data.dataset)
    model = build_network(context, context.open_store(), start).eval()
    for split, prefix in (("test", ""), ("val", "val_")):
        rows = dataset.indices(split)
        with torch.no_grad():  # one image at a time: in eval mode batches must not matter
            logits = torch.cat([model(torch.from_numpy(dataset.images[[row]]) / 255) for row in rows]).double()
        targets = dataset.targets[rows]
        expected = expected_metrics(logits.sigmoid().numpy(), targets) | {
            "loss": MultiLabel().loss(logits.numpy(), targets)
        }
        got = {n: out["metrics"][prefix + n] for n in expected}
        assert got == pytest.approx(expected, rel=1e-4)
    for batch in (1, 3, 6):  # 7 images: the incomplete last batch counts too
        assert np.allclose(predict_logits(context, model, dataset.images[rows], batch), logits, atol=1e-4)
    assert predict_logits(context, model, dataset.images[:0]).shape == (0, len(context.classes))
    assert len([name for name in out["metrics"] if "/" not in name]) == 2 * len(expected)
    assert list(out["per_class"]) == list(context.classes)
    assert sum(row["images"] for row in out["per_site"].values()) == len(dataset.indices("test"))
    assert out == evaluate_model(context, state), "the same bits again"
    assert out["per_client"] == {}, "the clients have no local test sets"
    assert out["metrics"]["images"] == 13
    assert out["metrics"]["val_images"] == 7
    other = dataclasses.replace(context, seed=context.seed + 1)
    assert evaluate_model(other, state) == out, "evaluation does not depend on the seed"


def test_accuracy_is_computed_for_single_label_sets_only():
    scores = np.array([[0.2, 0.3, 0.1], [0.9, 0.1, 0.8], [0.4, 0.5, 0.45], [0.1, 0.2, 0.3]])
    single = np.eye(3, dtype=np.uint8)[[1, 2, 1, 2]]  # the second image's highest score is that of another label
    assert multilabel_metrics(scores, single)["accuracy"] == 0.75
    several = single.copy()
    several[0, 0] = 1
    assert "accuracy" not in multilabel_metrics(scores, several)


def test_metrics_with_the_same_name_are_refused():
    assert combine({"a": 1.0}, {"b": 2.0}) == {"a": 1.0, "b": 2.0}
    with pytest.raises(AssertionError, match="loss"):
        combine({"loss": 1.0}, {}, {"loss": 2.0})
