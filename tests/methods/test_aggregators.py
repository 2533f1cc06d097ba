"""Aggregators and update transforms within real rounds: state that is resumed, what is evaluated, who is sent what."""

import dataclasses

import pytest
import torch

from flows.federation.evaluation import evaluate_round
from flows.methods import load_method
from flows.rounds import one_round
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.finished_rounds import finished_rounds, prune
from tasks.core.round_state import RoundState
from tasks.core.state_schema import parameters_of, read_schema
from tasks.core.update_transforms import clip_norm, sign_flip
from tests.support.rounds import NARROW, make_context, make_federation, run_round, run_rounds

RULES = {
    "fedavgm": {"momentum": 0.5},
    "fedadam": {"lr": 0.01},
    "ema": {"decay": 0.5},
    "median": {},
    "multi_krum": {"byzantine": 0, "selected": 2},
}


def start_of(tiny_data, folder, name, **changes):
    spec = AggregatorSpec(name, RULES.get(name, {}))
    return make_context(tiny_data, folder, network=NARROW, aggregator=spec, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_run_that_is_resumed_before_every_round_ends_the_same(name, tiny_data, tmp_path):
    context, start = start_of(tiny_data, tmp_path / "whole", name)
    whole = run_rounds(3, "fedavg", context, start, tiny_data.sizes)
    context, start = start_of(tiny_data, tmp_path / "run", name, evaluation=EvaluationSettings(every=100))
    module = load_method("fedavg")
    for number in range(1, 4):
        state = finished_rounds(context.open_store(), number)[-1].state if number > 1 else None
        held = {"number": number, "state": state or RoundState.starting_from(start)}
        fed = make_federation(context, module.Settings(), tiny_data.sizes, **held)
        prune(context.open_store(), one_round(fed, module.run_round, tmp_path / "run"))
    for record, fed in zip(finished_rounds(context.open_store(), 3), whole, strict=True):
        models = [{key: ref.digest for key, ref in state.models.items()} for state in (record.state, fed.record.state)]
        assert models[0] == models[1]
        assert record.weights == fed.record.weights
        server = [{key: ref.digest for key, ref in state.server.items()} for state in (record.state, fed.record.state)]
        assert server[0] == server[1] and set(server[0]) == ({name} if name in ("fedavgm", "fedadam", "ema") else set())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedprox", "moon", "fmman"])
def test_methods_use_the_chosen_aggregator_in_their_last_step(method, tiny_data, tmp_path):
    own = {"fmman": {"clusters": 2, "cluster_on": "backbone.layer4."}}.get(method, {})
    context, start = start_of(tiny_data, tmp_path, "median")
    record = run_round(method, context, start, tiny_data.sizes, own=own).record
    store, last = context.open_store(), record.updates[max(record.updates)]
    state, states = store.get_state(record.model), [store.get_state(update.model) for update in last]
    for name in parameters_of(read_schema(context)):
        ordered = torch.stack([other[name] for other in states]).sort(0).values
        assert torch.allclose(state[name], (ordered[1] + ordered[2]) / 2, atol=1e-7), name
    assert record.weights == dict.fromkeys(tiny_data.ids, 0.25)


@pytest.mark.slow
def test_the_moving_average_is_evaluated_and_training_goes_on_from_the_mean(tiny_data, tmp_path):
    context, start = start_of(tiny_data, tmp_path, "ema")
    first, second = run_rounds(2, "fedavg", context, start, tiny_data.sizes)
    state = second.record.state
    assert state.evaluated_model == state.models["ema"] != state.global_model
    plain = dataclasses.replace(context, aggregator=AggregatorSpec("mean"))
    alike = run_rounds(2, "fedavg", plain, start, tiny_data.sizes)
    assert [fed.record.model.digest for fed in (first, second)] == [fed.record.model.digest for fed in alike]
    evaluate_round(second.engine, context, second.settings, second.record, second.clients)
    evaluate_round(second.engine, context, second.settings, alike[1].record, second.clients)
    assert second.record.metrics["loss"] != alike[1].record.metrics["loss"]


def test_updates_are_transformed_at_the_client_and_at_the_server(tiny_data, tmp_path):
    bad = tiny_data.ids[0]
    transforms = {
        "client_transforms": (sign_flip.Settings(clients=(bad,), scale=2.0),),
        "server_transforms": (clip_norm.Settings(max_norm=0.01),),
    }
    context, start = make_context(tiny_data, tmp_path / "run", network=NARROW, **transforms)
    record = run_round("fedavg", context, start, tiny_data.sizes).record
    honest, begin = make_context(tiny_data, tmp_path / "honest", network=NARROW)
    true = run_round("fedavg", honest, begin, tiny_data.sizes).record
    names = parameters_of(read_schema(context))
    store, others, begun = context.open_store(), honest.open_store(), context.open_store().get_state(start)
    for update, untouched in zip(record.updates[1], true.updates[1], strict=True):
        state, plain = store.get_state(update.model), others.get_state(untouched.model)
        assert clip_norm.change_norm(state, begun, names) == pytest.approx(0.01, rel=1e-4)
        changes = [torch.cat([(s[name] - begun[name]).flatten() for name in names]) for s in (state, plain)]
        cosine = float(torch.nn.functional.cosine_similarity(*changes, dim=0))
        assert cosine == pytest.approx(-1 if update.client == bad else 1, abs=1e-3)
        assert all(torch.equal(state[name], plain[name]) for name in state.keys() - set(names)), "buffers are untouched"
