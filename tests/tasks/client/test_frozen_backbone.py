"""`train.freeze: backbone`: only the head trains, the encoder's vectors are computed once, the encoder travels once."""

import pytest
import torch
from pydantic import ValidationError

from flows.methods import METHODS
from tasks.client import frozen_backbone
from tasks.client.frozen_backbone import without_backbone
from tasks.core.network import build_network
from tasks.core.store import state_bytes
from tasks.core.train_settings import TrainSettings
from tests.support.contracts import CONTRACTS
from tests.support.rounds import PLAIN_SGD, make_context, run_rounds

FROZEN = {"freeze": "backbone"} | PLAIN_SGD
NAMES = sorted((CONTRACTS.keys() & METHODS.keys()) - {"fedala", "fedrep"})  # which change or train the encoder


def play(data, folder, rounds=1, method="fedavg", **train):
    context, start = make_context(data, folder, train=FROZEN | train)
    return start, run_rounds(rounds, method, context, start, data.sizes)


def states(fed, start):
    store = fed.context.open_store()
    return store.get_state(start), store.get_state(fed.record.state.global_model)


def test_rates_of_a_frozen_part_are_refused():
    with pytest.raises(ValidationError, match="freeze is backbone"):
        TrainSettings.model_validate({"freeze": "backbone", "group_lr": {"head": 2.0}})


@pytest.mark.parametrize(
    ("change", "expected"),
    [({}, False), ({"flip": True}, True), ({"shift": 1}, True), ({"augment": {"hue": 0.1}}, True),
     ({"augment": {"crop": "pad"}}, True), ({"augment": {"erasing": 0.5}}, True), ({"augment": {"rotation": 5}}, True),
     ({"augment": {"vertical_flip": True}}, True)],
)  # fmt: skip
def test_augments_says_whether_images_change(change, expected):
    assert TrainSettings.model_validate(change).augments is expected


@pytest.mark.slow
def test_a_classifier_without_its_backbone_maps_vectors_to_the_same_logits(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path)
    model = build_network(context, context.open_store(), start).eval()
    images = torch.rand(3, 3, 32, 32)
    assert torch.equal(without_backbone(model)(model.backbone.pooled(images)), model(images))
    assert without_backbone(model).readout is model.readout and hasattr(model.backbone, "normalise")


@pytest.mark.slow
def test_only_the_head_changes_and_statistics_stay(tiny_data, tmp_path):
    start, [fed] = play(tiny_data, tmp_path)
    before, after = states(fed, start)
    assert any("running_mean" in name for name in before)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"readout.weight", "readout.bias"}


@pytest.mark.slow
def test_vectors_train_the_head_as_images_do(tiny_data, tmp_path, monkeypatch):
    start, [by_vectors] = play(tiny_data, tmp_path / "vectors", epochs=3)
    monkeypatch.setattr(frozen_backbone, "takes_vectors", lambda *_: False)
    other, [by_images] = play(tiny_data, tmp_path / "images", epochs=3)
    assert start.digest == other.digest
    before, with_vectors = states(by_vectors, start)
    with_images = states(by_images, other)[1]
    moved = (with_images["readout.weight"] - before["readout.weight"]).norm()
    assert (with_vectors["readout.weight"] - with_images["readout.weight"]).norm() < 1e-4 * moved


@pytest.mark.slow
def test_vectors_are_computed_once_for_all_rounds(tiny_data, tmp_path, monkeypatch):
    computed, compute = [], frozen_backbone.compute_vectors
    monkeypatch.setattr(frozen_backbone, "_vectors", frozen_backbone.LastUsed())
    monkeypatch.setattr(frozen_backbone, "compute_vectors", lambda *args: computed.append(1) or compute(*args))
    play(tiny_data, tmp_path, rounds=3)
    assert len(computed) == len(tiny_data.sizes)


@pytest.mark.slow
def test_augmented_images_are_encoded_anew(tiny_data, tmp_path, monkeypatch):
    monkeypatch.setattr(frozen_backbone, "compute_vectors", lambda *_: pytest.fail("vectors of images that change"))
    start, [fed] = play(tiny_data, tmp_path, flip=True)
    before, after = states(fed, start)
    assert not torch.equal(before["readout.weight"], after["readout.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("downlink", [False, True])
def test_the_encoder_travels_once(tiny_data, tmp_path, downlink):
    from tasks.core.update_transforms.bf16 import Settings

    specs = {"downlink_transforms": (Settings(name="bf16"),)} if downlink else {}
    context, start = make_context(tiny_data, tmp_path, train=FROZEN, **specs)
    first, second = run_rounds(2, "fedavg", context, start, tiny_data.sizes)
    head = state_bytes({n: v for n, v in states(first, start)[0].items() if n.startswith("readout.")})
    clients = len(tiny_data.sizes)
    assert first.record.stages[0].bytes_down == clients * start.bytes
    assert first.record.stages[0].bytes_up == second.record.stages[0].bytes_up == clients * head
    assert second.record.stages[0].bytes_down == clients * (head // 2 if downlink else head)


@pytest.mark.slow
def test_compressed_updates_leave_the_encoder_out(tiny_data, tmp_path):
    from tasks.core.update_transforms.bf16 import Settings

    context, start = make_context(tiny_data, tmp_path, train=FROZEN, client_transforms=(Settings(name="bf16"),))
    [fed] = run_rounds(1, "fedavg", context, start, tiny_data.sizes)
    before, after = states(fed, start)
    head = state_bytes({n: v for n, v in before.items() if n.startswith("readout.")})
    assert fed.record.stages[0].bytes_up == len(tiny_data.sizes) * head // 2
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"readout.weight", "readout.bias"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_method_leaves_a_frozen_encoder_as_it_is(name, tiny_data, tmp_path):
    contract = CONTRACTS[name]
    options = {"objective": contract.objective, "network": contract.network}
    context, start = make_context(tiny_data, tmp_path, train=contract.train | {"freeze": "backbone"}, **options)
    rounds = run_rounds(2, name, context, start, tiny_data.sizes, own=contract.active, **contract.federation)
    store, state = context.open_store(), rounds[-1].record.state
    before = store.get_state(start)
    for model, ref in state.models.items():
        after = store.get_state(ref)
        changed = {key for key in before if key in after and not torch.equal(before[key], after[key])}
        assert not any(key.startswith("backbone.") for key in changed), (model, sorted(changed)[:3])
