"""Validation of updates: missing, extra, misshaped and non-finite tensors, digests, reported numbers."""

import dataclasses
import math
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import torch

from models.weights.state_spec import TensorSpec
from tasks.core.records import ModelRef, Update
from tasks.core.store import Store
from tasks.server.validate_updates import check_updates, tensor_errors

SCHEMA = {
    "w": TensorSpec("parameter"),
    "bn.running_var": TensorSpec("buffer", nonnegative=True),
    "bn.num_batches_tracked": TensorSpec("counter"),
}


def template():
    return {"w": torch.ones(2, 3), "bn.running_var": torch.ones(3), "bn.num_batches_tracked": torch.tensor(4)}


@pytest.fixture
def context(tmp_path):
    Store(tmp_path).write_json("state_schema.json", {name: asdict(spec) for name, spec in SCHEMA.items()})
    return SimpleNamespace(open_store=lambda: Store(tmp_path))


def update(context, client="a", state=None, samples=5, sums=None):
    ref = context.open_store().put_state(f"updates/{client}.safetensors", template() if state is None else state)
    return Update(client, ref, samples, steps=1, sums=sums or {"classification": (2.0, 4.0)}, seconds=0.1)


def check(context, *updates):
    start = context.open_store().put_state("start.safetensors", template())
    return check_updates(context, updates, start, stage=3)


CASES = {
    "missing": ({"w": None}, ["tensor w is missing"]),
    "extra": ({"v": torch.ones(1)}, ["tensor v is not part of the model"]),
    "shape": ({"w": torch.ones(3, 2)}, ["tensor w has shape (3, 2), expected (2, 3)"]),
    "dtype": ({"w": torch.ones(2, 3, dtype=torch.float64)}, ["tensor w has dtype torch.float64, expected torch.fl"]),
    "float counter": ({"bn.num_batches_tracked": torch.tensor(4.0)}, ["has dtype torch.float32, expected torch.int64"]),
    "nan": ({"w": torch.tensor([[1.0, math.nan, 0], [0, 0, 0]])}, ["tensor w holds values that are not finite"]),
    "inf": ({"bn.running_var": torch.tensor([1.0, -math.inf, 0])}, ["tensor bn.running_var holds values that are not"]),
    "variance": ({"bn.running_var": torch.tensor([1.0, -0.5, 0])}, ["tensor bn.running_var holds negative variances"]),
    "two": ({"w": None, "v": torch.ones(1)}, ["tensor w is missing", "tensor v is not part of the model"]),
    "fine": ({"w": torch.full((2, 3), 1e30)}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_tensor_errors(case):
    change, sentences = CASES[case]
    state = {name: value for name, value in (template() | change).items() if value is not None}
    found = tensor_errors(state, template(), SCHEMA)
    assert len(found) == len(sentences)
    assert all(sentence in text for sentence, text in zip(sentences, found, strict=True))


@pytest.mark.parametrize("case", [case for case in CASES if case != "fine"])
def test_an_invalid_update_is_rejected_and_the_others_count(context, case):
    change, sentences = CASES[case]
    state = {name: value for name, value in (template() | change).items() if value is not None}
    good, dropped = check(context, update(context, "b"), update(context, "bad", state), update(context, "a"))
    assert [u.client for u in good] == ["a", "b"], "in client order"
    assert [(d.client, d.stage) for d in dropped] == [("bad", 3)]
    assert all(sentence in dropped[0].reason for sentence in sentences)


def test_an_update_with_a_wrong_digest_is_rejected(context):
    wrong = update(context, "wrong")
    wrong = dataclasses.replace(wrong, model=dataclasses.replace(wrong.model, digest="0" * 64))
    good, dropped = check(context, wrong)
    assert good == [] and "do not match the digest" in dropped[0].reason


def test_weights_changed_after_sending_are_rejected(context):
    sent = update(context)
    changed = template() | {"w": torch.zeros(2, 3)}
    context.open_store().put_state(sent.model.uri, changed)
    assert "do not match the digest" in check(context, sent)[1][0].reason


@pytest.mark.parametrize("how", ["missing", "no safetensors"])
def test_unreadable_weights_are_rejected(context, how):
    sent = update(context)
    if how == "missing":
        sent = dataclasses.replace(sent, model=ModelRef("updates/nothing.safetensors", "0" * 64, 1))
    else:
        context.open_store().write_bytes(sent.model.uri, b"no weights")
    good, dropped = check(context, sent, update(context, "b"))
    assert [u.client for u in good] == ["b"] and [d.client for d in dropped] == ["a"]
    assert dropped[0].reason in ("a file of the run is missing", "not a readable safetensors file")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"samples": 0}, "reports 0 training images"),
        ({"samples": -3}, "reports -3 training images"),
        ({"sums": {"classification": (math.inf, 1.0)}}, "reported loss is infinite"),
    ],
)
def test_the_reported_numbers_are_checked(context, change, sentence):
    good, dropped = check(context, update(context, **change))
    assert good == [] and sentence in dropped[0].reason


def test_a_client_without_a_loss_still_counts(context):
    sent = update(context, sums={"other": (1.0, 1.0)})
    assert check(context, sent) == ([sent], [])


def test_a_long_list_of_errors_is_shortened(context):
    state = template() | {f"extra{i}": torch.ones(1) for i in range(5)}
    reason = check(context, update(context, state=state))[1][0].reason
    assert reason.count("not part of the model") == 3 and reason.endswith("(and 2 more)")


def test_a_sample_count_that_differs_from_the_partition_is_rejected(context):
    start = context.open_store().put_state("start.safetensors", template())
    updates = [update(context, "a", samples=5), update(context, "b", samples=500)]
    good, dropped = check_updates(context, updates, start, 1, {"a": 5, "b": 50})
    assert [entry.client for entry in good] == ["a"]
    assert "reports 500 training images, the partition has 50" in dropped[0].reason
