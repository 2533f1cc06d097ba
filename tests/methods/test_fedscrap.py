"""FedScrap in rounds: own models, absent clients, the record of the attention, resuming. Its formulas are tested in
`tests/tasks/server/test_attention.py` and `test_fedscrap.py` there.
"""

import itertools

import numpy as np
import pytest
import torch

from flows.methods import load_method
from flows.rounds import one_round
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.finished_rounds import finished_rounds, prune
from tasks.core.own_models import own_tensors
from tasks.core.round_state import RoundState
from tasks.server.mixing_record import read_mixing
from tests.support.rounds import make_context, make_federation, partitioned, run_round, run_rounds

SGD = {"train": {"optimizer": "sgd", "lr": 0.02}}


@pytest.fixture(scope="module")
def four(tiny_data, tmp_path_factory):
    """The tiny data in four clients."""
    return partitioned(tiny_data.dataset, tmp_path_factory.mktemp("four") / "clients", scheme="iid", clients=4)


def digests(state):
    parts = (state.models, state.server)
    return [{name: ref.digest for name, ref in part.items()} for part in parts], state.own


@pytest.mark.slow
def test_a_self_weight_of_one_is_local_training(four, tmp_path):
    """As each client trains alone: FedAvg with one client, bit for bit."""
    context, start = make_context(four, tmp_path / "run", **SGD)
    last = run_rounds(2, "fedscrap", context, start, four.sizes, own={"self_weight": 1.0})[-1].record.state
    for client, size in four.sizes.items():
        alone = run_rounds(2, "fedavg", *make_context(four, tmp_path / client, **SGD), {client: size})[-1]
        assert last.own_model(client)[0].digest == alone.record.model.digest


@pytest.mark.slow
def test_clients_train_from_their_own_models_and_the_attention_is_recorded(four, tmp_path):
    context, start = make_context(four, tmp_path, **SGD)
    first, second = run_rounds(2, "fedscrap", context, start, four.sizes)
    store, own = context.open_store(), [second.record.state.own_model(c)[0].digest for c in four.ids]
    assert len({*own, second.record.model.digest}) == 5
    record = read_mixing(store, second.record.state)
    assert record.models == record.clients == four.ids
    assert "readout" in record.layers and "backbone.layer1.0.conv1" in record.layers and len(record.layers) == 41
    for weights in record.layers.values():
        assert np.allclose(weights.sum(1), 1, atol=1e-6) and (weights.argmax(1) == np.arange(4)).all()
    (before, after) = (read_mixing(store, fed.record.state).layers["readout"] for fed in (first, second))
    assert not np.allclose(before, after)
    trained = [store.get_state(update.model)["readout.bias"].double() for update in second.record.updates[1]]
    for client, row in zip(four.ids, after, strict=True):
        mixed = sum(float(w) * bias for w, bias in zip(row, trained, strict=True))
        assert torch.allclose(
            own_tensors(store, second.record.state, client)["readout.bias"].double(), mixed, atol=1e-6
        )


@pytest.mark.slow
def test_what_was_trained_can_be_the_own_model(four, tmp_path):
    context, start = make_context(four, tmp_path, **SGD)
    state = run_round("fedscrap", context, start, four.sizes, own={"own_model": "trained"}).record
    for update in state.updates[1]:
        assert state.state.own_model(update.client)[0] == update.model
        assert state.state.models[f"client/{update.client}"].digest != update.model.digest


@pytest.mark.slow
@pytest.mark.parametrize("stale", [False, True])
def test_absent_clients_keep_their_model_and_are_attended_to_if_asked(four, tmp_path, stale):
    context, start = make_context(four, tmp_path, **SGD)
    own = {"stale": stale, "attention": "rbf"}
    rounds = run_rounds(4, "fedscrap", context, start, four.sizes, own=own, clients_per_round=2)
    met = set(rounds[0].record.participants)
    for before, fed in itertools.pairwise(rounds):
        present, old, new = set(fed.record.participants), before.record.state, fed.record.state
        for client in met - present:
            assert new.own_model(client) == old.own_model(client)
        record = read_mixing(context.open_store(), new)
        assert set(record.models) == present == fed.record.weights.keys()
        assert set(record.clients) == (met | present if stale else present)
        assert sum(name.startswith("upload/") for name in new.models) == (len(met | present) if stale else 0)
        met |= present
    assert len(met) > 2  # else nobody was absent after having been there
    assert sorted(rounds[-1].record.state.own) == sorted(met)


@pytest.mark.slow
def test_a_run_with_absent_clients_that_is_resumed_before_every_round_ends_the_same(four, tmp_path):
    own = {"stale": True, "attention": "update_cosine", "own_model": "trained", "top_k": 2}
    options = {"clients_per_round": 2}
    context, start = make_context(four, tmp_path / "one", **SGD)
    undisturbed = run_rounds(3, "fedscrap", context, start, four.sizes, own=own, **options)[-1].record
    context, start = make_context(four, tmp_path / "two", evaluation=EvaluationSettings(every=100), **SGD)
    module, store = load_method("fedscrap"), context.open_store()
    for number in (1, 2, 3):
        state = finished_rounds(store, number)[-1].state if number > 1 else RoundState.starting_from(start)
        fed = make_federation(context, module.Settings(**own), four.sizes, number=number, state=state, **options)
        prune(store, one_round(fed, module.run_round, tmp_path / "two"))
    last = finished_rounds(store, 3)[-1]
    assert digests(last.state) == digests(undisturbed.state)
    kinds = {path.name.rpartition("-")[0] for path in (tmp_path / "two" / "clients").glob("*/*.safetensors")}
    assert kinds == {"model", "upload", "received"}
    present = [path.parent.name for path in (tmp_path / "two" / "clients").glob("*/upload-0003.safetensors")]
    assert sorted(present) == sorted(last.participants)  # what others sent is of an earlier round


@pytest.mark.slow
def test_two_reports_are_noted(four, tmp_path):
    context, start = make_context(four, tmp_path, **SGD)
    (note,) = run_round("fedscrap", context, start, four.sizes, clients_per_round=2).record.notes
    assert "two clients reported" in note


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({"granularity": "block", "blocks": ("backbone.layer9.",)}, "begins with a block"),
        ({"attention": "dot_literal", "query": {"nobody": 2.0}}, "does not have"),
    ],
)
def test_what_the_run_does_not_have_is_refused_before_a_client_trains(four, tmp_path, own, found):
    context, start = make_context(four, tmp_path)
    fed = make_federation(context, load_method("fedscrap").Settings(**own), four.sizes, state=start, name="fedscrap")
    with pytest.raises(UserError, match=found):
        load_method("fedscrap").run_round(fed, fed.state)
    assert not fed.record.updates and not fed.record.participants


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (["attention=rbf", "top_k=1", "self_weight=0.5"], "must be at least 2"),
        (["attention=distance_literal", "temperature=0.5"], "has no softmax"),
        (["query={a: 2.0}"], "are for dot products"),
        (["granularity=block"], "needs blocks"),
        (["blocks=[a.]"], "only it uses them"),
        (["self_weight=1.5"], "less than or equal to 1"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(changes, found):
    with pytest.raises(UserError, match=found):
        load_settings(None, ["tiny", "fedscrap"], [f"method.fedscrap.{change}" for change in changes])


def test_two_clients_need_another_attention():
    two = ["federation.clients_per_round=2"]
    with pytest.raises(UserError, match="at least three clients"):
        load_settings(None, ["tiny", "fedscrap"], two)
    load_settings(None, ["tiny", "fedscrap"], [*two, "method.fedscrap.attention=update_cosine"])
    load_settings(None, ["tiny", "fedscrap"], [*two, "method.fedscrap.stale=true"])
