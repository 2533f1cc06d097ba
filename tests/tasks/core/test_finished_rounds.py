"""Finished rounds on disk: written whole, found again, cleaned up."""

import dataclasses
import uuid

import pytest
import torch

from models.errors import UserError
from tasks.core.finished_rounds import finished_rounds, folder_of, load_round, prune, save_round
from tasks.core.records import Dropped, ModelRef, RoundRecord, StageLog, Update
from tasks.core.store import Store


def put(store, name, value):
    return store.put_state(name, {"w": torch.full((3,), float(value)), "n": torch.tensor(value)})


def record_of(store, number=1):
    """A round whose models lie among the updates, as the federation leaves them."""
    models = [put(store, f"updates/{number}-{k}.safetensors", 10 * number + k) for k in range(3)]
    state = put(store, f"clients/b/{number}.safetensors", number)
    update = Update("b", models[1], 5, 2, {"classification": (1.5, 3.0)}, 0.1, state)
    return RoundRecord(
        round=number,
        model=models[0],
        cluster_models=models[1:],
        cluster_of={"a": 0, "b": 1},
        participants=["a", "b"],
        updates={1: [update], 3: [update]},
        dropped=[Dropped("a", 3, "no answer")],
        stages=[StageLog("stage 1", 1.0, 2, 3, 4, 2)],
        weights={"b": 1.0},
        metrics={"macro_ap": 0.5},
        per_class={"x": {"ap": 0.5}},
        per_site={"s": {"macro_ap": 0.5}},
        client_states={"b": state},
        notes=["by size"],
    )


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
        "model.safetensors",
        "prototype-0.safetensors",
        "prototype-1.safetensors",
        "round.json",
    ]
    assert saved.model == dataclasses.replace(record.model, uri="rounds/0001/model.safetensors")
    assert all(store.holds(ref) for ref in (saved.model, *saved.cluster_models))
    assert load_round(store, 1) == saved
    sent = [update for updates in saved.updates.values() for update in updates]
    assert sent and all(update.model.uri == "" and update.model.digest for update in sent)  # removed with the round
    same = {"model": record.model, "cluster_models": record.cluster_models, "updates": record.updates}
    assert dataclasses.replace(saved, **same) == record


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
    store.write_bytes(record.cluster_models[1].uri, b"damaged")
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


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_finished_round_with_a_damaged_model_is_named(root, damage):
    store = Store(root)
    saved = [save_round(root, record_of(store, number)) for number in (1, 2)]
    if damage == "missing":
        store.delete(saved[1].model.uri)
    else:
        put(store, saved[1].model.uri, 99)
    with pytest.raises(UserError, match="finished round is damaged") as caught:
        finished_rounds(store, 2)
    assert "rounds/0002" in str(caught.value) and saved[1].model.digest in str(caught.value)
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


def test_pruning_keeps_the_rounds_and_the_newest_client_states(root):
    store = Store(root)
    for number in (1, 2):
        saved = save_round(root, record_of(store, number))
    put(store, "clients/c/old.safetensors", 1)
    put(store, "initial.safetensors", 0)
    prune(store, saved)
    assert not store.exists("updates")
    assert store.names("clients/b") == ["2.safetensors"] and store.names("clients/c") == []
    assert store.exists("initial.safetensors")
    assert [r.round for r in finished_rounds(store, 2)] == [1, 2]
    assert all(store.holds(ref) for ref in (saved.model, *saved.cluster_models, *saved.client_states.values()))
    prune(store, saved)


def test_a_record_survives_json_with_stage_numbers_as_numbers(tmp_path):
    store = Store(tmp_path)
    record = record_of(store)
    store.write_json("r.json", record.as_dict())
    back = RoundRecord.of(store.read_json("r.json"))
    assert back == record and set(back.updates) == {1, 3}
    assert back.updates[1][0].mean("classification") == 0.5
    assert back.updates[1][0].mean("nothing") != back.updates[1][0].mean("nothing"), "NaN"
    assert isinstance(back.updates[1][0].state, ModelRef)
