"""Compressed models on their way to clients: bytes, what clients train from, partial participation, error feedback."""

import dataclasses

import pytest
import torch

from tasks.client.payload import Payload
from tasks.core.state_schema import read_schema
from tasks.core.store import state_bytes
from tasks.core.update_transforms import int8, topk
from tasks.server.downlink import compress_model, read_holders
from tests.support.rounds import make_federation, run_round, run_rounds

INT8 = (int8.Settings(),)


@pytest.fixture
def compressed(make_run):
    context, start = make_run("compressed", objective="bce", downlink_transforms=INT8)
    return context, start


def parts_of(context, model):
    """Return parameters and other bytes of a model."""
    schema, state = read_schema(context), context.open_store().get_state(model)
    parameters = {name: value for name, value in state.items() if schema[name].kind == "parameter"}
    rest = state_bytes({name: value for name, value in state.items() if name not in parameters})
    return parameters, rest


def int8_bytes(context, model):
    parameters, rest = parts_of(context, model)
    return sum(value.numel() + 4 for value in parameters.values()) + rest


def test_by_hand(make_run):
    context, start = make_run("hand", downlink_transforms=INT8)
    store = context.open_store()
    state = store.get_state(start)
    name = next(name for name, spec in read_schema(context).items() if spec.kind == "parameter")
    moved = dict(state)
    moved[name] = state[name].clone()
    moved[name].view(-1)[:2] += torch.tensor([1.27, 0.504])  # levels of 0.01: 127 and 50.4
    model = store.put_state("moved.safetensors", moved)
    done = compress_model(context, model, start, None, True, 1, 1)
    restored = store.get_state(done.model)
    change = (restored[name] - state[name]).view(-1)
    assert change[:2].tolist() == pytest.approx([1.27, 0.50], abs=1e-6)
    assert change[2:].abs().max() == 0
    assert done.bytes == int8_bytes(context, start)
    kept = store.get_state(done.memory)[f"0-int8/{name}"].view(-1)
    assert kept[:2].tolist() == pytest.approx([0, 0.004], abs=1e-6)


@pytest.mark.slow
def test_the_first_model_goes_in_full_and_later_ones_as_their_change(compressed, tiny_data):
    context, start = compressed
    first, second = run_rounds(2, "fedavg", context, start, tiny_data.sizes)
    clients = len(tiny_data.sizes)
    assert first.record.stages[0].bytes_down == clients * start.bytes
    assert second.record.stages[0].bytes_down == clients * int8_bytes(context, start)
    assert second.record.stages[0].bytes_down < 0.4 * clients * start.bytes


@pytest.mark.slow
def test_clients_train_from_the_model_as_they_restore_it(compressed, tiny_data):
    context, start = compressed
    first, second = run_rounds(2, "fedavg", context, start, tiny_data.sizes)
    restored = second.as_sent(first.record.model)
    assert restored.digest != first.record.model.digest
    exact, sent = (parts_of(context, model)[0] for model in (first.record.model, restored))
    base = parts_of(context, start)[0]
    for name, value in exact.items():
        scale = (value - base[name]).abs().max() / 127
        assert (sent[name] - value).abs().max() <= scale / 2 * 1.01 + 1e-8
    other = dataclasses.replace(context, downlink_transforms=())
    fed = make_federation(other, None, tiny_data.sizes, number=2, state=restored)
    updates = fed.train(sorted(tiny_data.sizes), Payload.of(restored), stage=1, name="the same training")
    assert [u.model.digest for u in updates] == [u.model.digest for u in second.record.updates[1]]


@pytest.mark.slow
def test_what_a_model_loses_is_added_to_the_next(compressed, tiny_data):
    context, start = compressed
    first, second, third = run_rounds(3, "fedavg", context, start, tiny_data.sizes)
    store = context.open_store()
    kept = store.get_state(second.record.state.server["downlink-memory"])
    exact, restored = store.get_state(first.record.model), store.get_state(second.as_sent(first.record.model))
    for key, value in kept.items():
        name = key.removeprefix("0-int8/")
        assert torch.allclose(value, exact[name] - restored[name], atol=1e-6)
    again = compress_model(
        context,
        second.record.model,
        second.record.state.server["downlink-base"],
        second.record.state.server["downlink-memory"],
        True,
        3,
        1,
    )
    assert third.as_sent(second.record.model).digest == again.model.digest


@pytest.mark.slow
def test_a_client_without_the_base_gets_the_model_in_full_and_trains_from_the_same(compressed, tiny_data):
    context, start = compressed
    names = sorted(tiny_data.sizes)
    state, records = start, []
    for number, chosen in ((1, names[:2]), (2, names[1:3])):
        fed = make_federation(context, None, tiny_data.sizes, number=number, state=state)
        model = fed.state.global_model
        updates = fed.train(chosen, Payload.of(model), stage=1, name="local training")
        fed.state.with_global(fed.aggregate(updates, model, name="mean"))
        state = fed.state
        records.append(fed)
    small, full = int8_bytes(context, start), start.bytes
    assert records[1].record.stages[0].bytes_down == small + full
    assert read_holders(context, state.server["downlink-holders"]) == set(names[1:3])


@pytest.mark.slow
def test_fmmans_cluster_models_are_sent_as_changes_of_the_stage_before(make_run, tiny_data):
    context, start = make_run("fmman", objective="fmman", downlink_transforms=INT8)
    first = run_round("fmman", context, start, tiny_data.sizes, own={"clusters": 2})
    cost = {stage.name: stage.bytes_down for stage in first.record.stages}
    clients, small = len(tiny_data.sizes), int8_bytes(context, start)
    assert cost["stage 1 local training"] == clients * start.bytes  # the first of the run
    assert cost["stage 3 refine with prototypes"] == clients * 2 * small


@pytest.mark.slow
def test_a_repeated_round_sends_the_same(compressed, tiny_data, make_run):
    context, start = compressed
    done = run_rounds(3, "fedavg", context, start, tiny_data.sizes)
    other, same = make_run("other", objective="bce", downlink_transforms=INT8)
    assert same.digest == start.digest
    again = run_rounds(3, "fedavg", other, same, tiny_data.sizes)
    assert [fed.record.model.digest for fed in again] == [fed.record.model.digest for fed in done]


@pytest.mark.slow
def test_everything_sent_is_the_model_itself(make_run, tiny_data):
    everything = (topk.Settings(fraction=1.0, error_feedback=False),)
    context, start = make_run("everything", objective="bce", downlink_transforms=everything)
    first, second = run_rounds(2, "fedavg", context, start, tiny_data.sizes)
    store = context.open_store()
    exact, restored = store.get_state(first.record.model), store.get_state(second.as_sent(first.record.model))
    assert all(torch.allclose(value.float(), restored[name].float(), atol=1e-6) for name, value in exact.items())
