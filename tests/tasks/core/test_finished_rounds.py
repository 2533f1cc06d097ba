"""Finished rounds on disk: written whole, found again, cleaned up."""

import dataclasses
import uuid

import pytest
import torch

from models.errors import UserError
from tasks.core.finished_rounds import clusters_by_round, finished_rounds, folder_of, load_round, prune, save_round
from tasks.core.records import Dropped, ModelRef, RoundRecord, StageLog, Update
from tasks.core.round_state import RoundState
from tasks.core.store import Store


def put(store, name, value):
    return store.put_state(name, {"w": torch.full((3,), float(value)), "n": torch.tensor(value)})


def record_of(store, number=1):
    """A round whose models lie among the updates, as the federation leaves them."""
    models = [put(store, f"updates/{number}-{k}.safetensors", 10 * number + k) for k in range(3)]
    kept, made = (
        put(store, f"clients/b/{name}{number}.safetensors", number + k) for k, name in enumerate(("", "own-"))
    )
    update = Update("b", models[1], 5, 2, {"classification": (1.5, 3.0)}, 0.1, kept)
    state = RoundState(
        models={"global": models[0], "client/b": put(store, f"updates/{number}-b.safetensors", 10 * number + 5)},
        private={"b": kept},
        personal={"b": made},
        server={"fedcor": put(store, f"updates/{number}-server.safetensors", 10 * number + 7)},
        own={"b": "client/b"},
    )
    state.set_clusters({"a": 0, "b": 1}, models[1:])
    return RoundRecord(
        round=number,
        state=state,
        participants=["a", "b"],
        updates={1: [update], 3: [update]},
        dropped=[Dropped("a", 3, "no answer")],
        stages=[StageLog("stage 1", 1.0, 2, 3, 4, 2)],
        weights={"b": 1.0},
        metrics={"macro_ap": 0.5},
        per_class={"x": {"ap": 0.5}},
        per_site={"s": {"macro_ap": 0.5}},
        notes=["by size"],
    )


def refs_of(record):
    return [*record.state.models.values(), *record.state.server.values(), *record.state.at_clients]


@pytest.fixture(params=["disk", "memory"])
def root(request, tmp_path):
    return str(tmp_path / "run") if request.param == "disk" else f"memory://{uuid.uuid4()}"


def test_folders_are_numbered_from_one():
    assert folder_of(1) == "rounds/0001" and folder_of(12345) == "rounds/12345"


def test_a_round_is_saved_with_its_models_and_comes_back(root):
    store = Store(root)
    record = record_of(store)
    saved = save_round(root, record)
    assert store.names("rounds") == ["0001"]
    assert store.names("rounds/0001") == [
        "model-cluster-0.safetensors",
        "model-cluster-1.safetensors",
        "model.safetensors",
        "round.json",
        "server-fedcor.safetensors",
    ]
    moved = {
        "global": "rounds/0001/model.safetensors",
        "client/b": "clients/b/model-0001.safetensors",
        "cluster/0": "rounds/0001/model-cluster-0.safetensors",
        "cluster/1": "rounds/0001/model-cluster-1.safetensors",
    }
    models = {name: dataclasses.replace(record.state.models[name], uri=uri) for name, uri in moved.items()}
    server = dataclasses.replace(record.state.server["fedcor"], uri="rounds/0001/server-fedcor.safetensors")
    assert saved.state == dataclasses.replace(record.state, models=models, server={"fedcor": server})
    assert saved.model == models["global"]
    assert all(store.holds(ref) for ref in refs_of(saved))
    assert load_round(store, 1) == saved
    sent = [update for updates in saved.updates.values() for update in updates]
    assert sent and all(update.model.uri == "" and update.model.digest for update in sent)  # removed with the round
    assert dataclasses.replace(saved, state=record.state, updates=record.updates) == record


def test_clusters_are_read_back_by_round(root):
    store = Store(root)
    moved, without = record_of(store, 2), record_of(store, 3)
    moved.state.cluster_of = {"a": 1, "b": 1}
    without.state.cluster_of = {}
    for record in (record_of(store, 1), moved, without):
        save_round(root, record)
    assert clusters_by_round(store) == {1: {"a": 0, "b": 1}, 2: {"a": 1, "b": 1}}
    assert clusters_by_round(store, most=1) == {1: {"a": 0, "b": 1}}


def test_a_saved_round_is_never_written_again(root):
    store = Store(root)
    saved = save_round(root, record_of(store))
    other = dataclasses.replace(record_of(store), notes=["another"])
    assert save_round(root, other) == saved
    assert load_round(store, 1).notes == ["by size"]


def test_what_a_crash_left_is_replaced(root):
    store = Store(root)
    store.write_bytes("rounds/.0001.partial/junk", b"1")
    assert finished_rounds(store, 5) == []
    save_round(root, record_of(store))
    assert store.names("rounds") == ["0001"] and "junk" not in store.names("rounds/0001")


def test_a_round_with_damaged_weights_is_not_saved(root):
    store = Store(root)
    record = record_of(store)
    store.write_bytes(record.state.cluster_models[1].uri, b"damaged")
    with pytest.raises(UserError):
        save_round(root, record)
    assert not store.exists("rounds/0001") and finished_rounds(store, 3) == []


def test_finished_rounds_end_at_the_first_gap_and_at_the_most_wanted(root):
    store = Store(root)
    assert finished_rounds(store, 3) == []
    for number in (1, 2, 4):
        save_round(root, record_of(store, number))
    assert [r.round for r in finished_rounds(store, 9)] == [1, 2]
    assert [r.round for r in finished_rounds(store, 1)] == [1]


@pytest.mark.parametrize("part", ["global", "cluster/1", "server"])
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_finished_round_with_a_damaged_model_is_named(root, damage, part):
    store = Store(root)
    saved = [save_round(root, record_of(store, number)) for number in (1, 2)]
    ref = saved[1].state.server["fedcor"] if part == "server" else saved[1].state.models[part]
    if damage == "missing":
        store.delete(ref.uri)
    else:
        put(store, ref.uri, 99)
    with pytest.raises(UserError, match="finished round is damaged") as caught:
        finished_rounds(store, 2)
    assert "rounds/0002" in str(caught.value) and ref.digest in str(caught.value)
    assert [r.round for r in finished_rounds(store, 1)] == [1]


@pytest.mark.parametrize("content", [b"{}", b"[]", b"\xff\xfe", b"{", None])
def test_a_finished_round_with_a_damaged_record_is_named(root, content):
    store = Store(root)
    save_round(root, record_of(store))
    if content is None:
        store.delete("rounds/0001/round.json")
    else:
        store.write_bytes("rounds/0001/round.json", content)
    with pytest.raises(UserError, match="damaged") as caught:
        finished_rounds(store, 1)
    assert "rounds/0001" in str(caught.value)


@pytest.mark.parametrize("part", ["private", "personal", "model"])
def test_tensors_of_clients_are_required_of_the_last_round_alone(root, part):
    store = Store(root)
    state = [save_round(root, record_of(store, number)) for number in (1, 2)][1].state
    ref = state.models["client/b"] if part == "model" else getattr(state, part)["b"]
    store.delete(ref.uri)
    with pytest.raises(UserError, match="tensors of clients are gone") as caught:
        finished_rounds(store, 2)
    assert "rounds/0002" in str(caught.value) and ref.uri in str(caught.value)
    assert [r.round for r in finished_rounds(store, 1)] == [1]


def test_pruning_keeps_the_rounds_and_the_newest_client_states(root):
    store = Store(root)
    for number in (1, 2):
        saved = save_round(root, record_of(store, number))
    put(store, "clients/c/old.safetensors", 1)
    put(store, "initial.safetensors", 0)
    prune(store, saved)
    assert not store.exists("updates")
    assert store.names("clients/b") == ["2.safetensors", "model-0002.safetensors", "own-2.safetensors"]
    assert store.names("clients/c") == []
    assert store.exists("initial.safetensors")
    assert [r.round for r in finished_rounds(store, 2)] == [1, 2]
    assert all(store.holds(ref) for ref in refs_of(saved))
    prune(store, saved)


def test_pruning_keeps_the_client_states_of_the_best_round_too(root):
    store = Store(root)
    saved = [save_round(root, record_of(store, number)) for number in (1, 2, 3)]
    prune(store, saved[2], saved[0])
    assert all(store.holds(ref) for record in (saved[0], saved[2]) for ref in refs_of(record))
    assert not any(store.holds(ref) for ref in saved[1].state.at_clients)
    prune(store, saved[2], saved[2])
    assert not any(store.holds(ref) for ref in saved[0].state.at_clients)


def test_a_record_survives_json_with_stage_numbers_as_numbers(tmp_path):
    store = Store(tmp_path)
    record = record_of(store)
    store.write_json("r.json", record.as_dict())
    back = RoundRecord.of(store.read_json("r.json"))
    assert back == record and set(back.updates) == {1, 3} and back.state.cluster_of == {"a": 0, "b": 1}
    assert back.updates[1][0].mean("classification") == 0.5
    assert back.updates[1][0].mean("nothing") != back.updates[1][0].mean("nothing"), "NaN"
    assert isinstance(back.updates[1][0].state, ModelRef)
