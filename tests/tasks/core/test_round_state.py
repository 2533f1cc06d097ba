"""The state between two rounds: copies, whose model is whose, its digest, clusters, what is with the clients."""

import dataclasses

import pytest

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.round_state import (
    RoundState,
    client_model,
    client_of,
    cluster_model,
    kept_for,
    received_model,
    upload_model,
)


def ref(name, size=10):
    return ModelRef(f"{name}.safetensors", f"digest of {name}", size)


def full():
    return RoundState(
        models={"global": ref("g"), "cluster/0": ref("k0"), "client/a": ref("a"), "sigma": ref("sigma")},
        private={"a": ref("kept a"), "b": ref("kept b")},
        personal={"b": ref("made b")},
        server={"scaffold": ref("control")},
        own={"a": "client/a", "c": "cluster/0"},
        cluster_of={"c": 0},
        participations={"a": 2},
    )


def test_the_first_state_is_one_global_model():
    state = RoundState.starting_from(ref("g"))
    assert state == RoundState(models={"global": ref("g")}) and state.global_model == ref("g")
    assert (state.personalised, state.at_clients, state.cluster_models) == ([], [], [])
    assert state.with_global(ref("next")) is state and state.models == {"global": ref("next")}


def test_a_state_without_a_global_model_says_so():
    with pytest.raises(UserError, match=r"no global model(.|\n)*sigma"):
        _ = RoundState(models={"sigma": ref("s")}).global_model


@pytest.mark.parametrize("part", [field.name for field in dataclasses.fields(RoundState) if field.name != "evaluated"])
def test_a_copy_and_its_original_do_not_change_each_other(part):
    state, expected = full(), full()
    copy = state.copy()
    assert copy == state and copy is not state
    getattr(copy, part)["new"] = "another"
    assert state == expected and copy != expected
    again = state.copy()
    getattr(state, part).clear()
    assert again == expected


def test_a_new_global_model_or_new_clusters_of_a_copy_leave_the_original():
    state = full()
    copy = state.copy().with_global(ref("next"))
    copy.set_clusters({"a": 0}, [ref("other")])
    assert state == full() and copy.global_model == ref("next") and copy.cluster_models == [ref("other")]


def test_each_client_has_the_model_that_the_server_evaluates_for_it():
    state = full()
    assert state.personalised == ["a", "b", "c"]
    # Its own, with what it keeps.
    assert state.own_model("a") == (ref("a"), (ref("kept a"),))
    # The global one; what it keeps comes first, so what was made for it replaces that.
    assert state.own_model("b") == (ref("g"), (ref("kept b"), ref("made b")))
    # Its cluster's.
    assert state.own_model("c") == (ref("k0"), ())
    # The global one for all others, even if they keep tensors.
    state.private["d"] = ref("kept d")
    assert state.own_model("d") == state.own_model("never seen") == (ref("g"), ())


def test_a_client_whose_model_is_not_there_is_named():
    state = full()
    state.own["e"] = "client/e"
    with pytest.raises(UserError, match=r"where: e\n(.|\n)*client/e"):
        state.own_model("e")
    del state.models["global"]
    assert state.own_model("a")[0] == ref("a")
    with pytest.raises(UserError, match=r"where: b\n(.|\n)*global"):
        state.own_model("b")
    with pytest.raises(UserError, match="no global model"):
        state.own_model("d")


def test_the_digest_is_the_global_models_or_that_of_all_models():
    state = full()
    assert state.digest == ref("g").digest
    state.models["sigma"] = ref("other")
    assert state.digest == ref("g").digest

    parts = {"sigma": ref("sigma"), "client/a": ref("a")}
    digest = RoundState(models=parts).digest
    assert len(digest) == 64 and int(digest, 16) >= 0
    assert RoundState(models=dict(reversed(parts.items()))).digest == digest
    moved = {name: dataclasses.replace(model, uri="elsewhere") for name, model in parts.items()}
    assert RoundState(models=moved, private={"a": ref("kept")}).digest == digest
    swapped = {"sigma": ref("a"), "client/a": ref("sigma")}
    for other in (swapped, parts | {"sigma": ref("x")}, parts | {"psi": ref("x")}, {"sigma": ref("sigma")}):
        assert RoundState(models=other).digest != digest


def test_clusters_replace_the_former_ones_and_nothing_else():
    state, given = full(), {"a": 1, "b": 0}
    state.set_clusters(given, [ref("x"), ref("y"), ref("z")])
    assert state.cluster_models == [ref("x"), ref("y"), ref("z")] and state.cluster_of == {"a": 1, "b": 0}
    state.set_clusters({"a": 0}, [ref("w")])
    assert state.cluster_models == [ref("w")] and state.cluster_of == {"a": 0}
    expected = full().models | {"cluster/0": ref("w")}
    assert state == dataclasses.replace(full(), models=expected, cluster_of={"a": 0})
    state.set_clusters(given, [])
    given["a"] = 9
    assert state.cluster_models == [] and state.cluster_of == {"a": 1, "b": 0}


def test_more_than_ten_clusters_are_in_the_order_of_their_index():
    models, state = [ref(k) for k in range(12)], RoundState()
    state.set_clusters({}, models)
    assert state.cluster_models == models


def test_what_is_stored_with_the_clients():
    assert full().at_clients == [ref("kept a"), ref("kept b"), ref("made b"), ref("a")]


def test_names_of_models():
    assert (client_model("a/b"), cluster_model(3)) == ("client/a/b", "cluster/3")
    assert client_of(client_model("a/b")) == "a/b"
    assert [client_of(name) for name in ("global", cluster_model(0), "sigma")] == [None] * 3
    kinds = {client_model("a/b"): "model", upload_model("a/b"): "upload", received_model("a/b"): "received"}
    assert {name: kept_for(name) for name in kinds} == {name: (kind, "a/b") for name, kind in kinds.items()}
    assert [kept_for(name) for name in ("global", cluster_model(0), "sigma")] == [None] * 3
    state = RoundState(models={name: ref(kind) for name, kind in kinds.items()} | {"global": ref("g")})
    assert state.at_clients == [ref("model"), ref("upload"), ref("received")]


def test_a_shared_model_of_ones_own_is_the_evaluated_one():
    state = RoundState(models={"global": ref("g"), "ema": ref("e")}, own={"a": "global"}, evaluated="ema")
    assert state.own_model("a") == (ref("e"), ())
