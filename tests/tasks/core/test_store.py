"""The run's files: whole or not at all, verified by digest, on a disk or behind an fsspec URL."""

import dataclasses
import hashlib
import json
import threading
import uuid
from pathlib import Path

import pytest
import torch

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.store import Store, digest_of, state_bytes, state_digest


def state(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {"w": torch.randn(4, 3, generator=generator), "n": torch.tensor(seed), "b": torch.zeros(0)}


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    if request.param == "disk":
        yield Store(tmp_path / "run")
        return
    made = Store(f"memory://{uuid.uuid4()}")
    yield made
    if made.exists(""):
        made.delete("")


def test_state_digest_by_hand():
    w = torch.tensor([1.5, -2.0])
    expected = hashlib.sha256(b"a|torch.int64|()|" + (3).to_bytes(8, "little"))
    expected.update(b"w|torch.float32|(2,)|" + w.numpy().tobytes())
    assert state_digest({"w": w, "a": torch.tensor(3)}) == expected.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        {"v": torch.ones(2, 2)},
        {"w": torch.ones(4)},
        {"w": torch.ones(2, 2, dtype=torch.float64)},
        {"w": torch.ones(2, 2) + torch.eye(2) * 1e-7},
        {"w": torch.ones(2, 2), "x": torch.ones(1)},
    ],
)
def test_any_change_of_a_state_changes_its_digest(other):
    assert state_digest(other) != state_digest({"w": torch.ones(2, 2)})


def test_digests_ignore_order_and_memory_layout():
    w = torch.arange(6.0).reshape(2, 3)
    assert state_digest({"a": w, "b": w}) == state_digest({"b": w, "a": w.T.contiguous().T})
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1}) != digest_of({"a": 1, "b": [3]})


def test_a11_bytes_are_those_of_the_tensors():
    assert state_bytes({"w": torch.zeros(3, 4), "n": torch.tensor(1), "h": torch.zeros(5, dtype=torch.half)}) == 66


def test_states_come_back_as_they_were(store):
    ref = store.put_state("deep/er/model.safetensors", state(3))
    assert ref == ModelRef("deep/er/model.safetensors", state_digest(state(3)), state_bytes(state(3)))
    back = store.get_state(ref)
    assert all(torch.equal(back[n], v) and back[n].dtype == v.dtype for n, v in state(3).items())
    assert back.keys() == state().keys() and store.holds(ref)
    with store.open_state(ref) as reader:
        assert set(reader.keys()) == set(state()) and torch.equal(reader.get_tensor("w"), state(3)["w"])


def test_views_and_transposes_can_be_stored(store):
    w = torch.arange(12.0).reshape(3, 4)
    back = store.get_state(store.put_state("m", {"t": w.T, "row": w[1], "p": torch.nn.Parameter(w + 1)}))
    assert torch.equal(back["t"], w.T) and torch.equal(back["row"], w[1])


def test_a_wrong_digest_is_noticed_unless_told_not_to(store):
    ref = store.put_state("m.safetensors", state())
    wrong = dataclasses.replace(ref, digest="0" * 64)
    assert store.holds(ref) and not store.holds(wrong)
    with pytest.raises(UserError, match="do not match their digest"):
        store.get_state(wrong)
    assert store.get_state(wrong, verify=False).keys() == state().keys()


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "other"])
def test_damaged_weights_are_user_errors(store, damage):
    ref = store.put_state("m.safetensors", state())
    data = store.fs.cat_file(store.path(ref.uri))
    if damage == "missing":
        store.delete(ref.uri)
    else:
        store.write_bytes(ref.uri, {"empty": b"", "cut": data[:-5], "other": b"x" * 200}[damage])
    assert not store.holds(ref)
    with pytest.raises(UserError) as caught:
        store.get_state(ref)
    assert ref.uri in str(caught.value)


def test_json_comes_back_and_faults_name_the_file(store):
    store.write_json("a/record.json", {"b": [1, 2.5, None], "a": "é"})
    assert store.read_json("a/record.json") == {"b": [1, 2.5, None], "a": "é"}
    with pytest.raises(UserError, match=r"missing(?s:.)*a/nothing\.json"):
        store.read_json("a/nothing.json")
    store.write_bytes("a/record.json", b'{"b": [1,')
    with pytest.raises(UserError, match=r"damaged(?s:.)*a/record\.json"):
        store.read_json("a/record.json")


def test_names_and_delete(store):
    assert store.names("things") == []
    for name in ("things/b", "things/a", "things/sub/c"):
        store.write_bytes(name, b"1")
    assert store.names("things") == ["a", "b", "sub"]
    store.delete("things/sub")
    store.delete("things/nothing")
    assert store.names("things") == ["a", "b"]
    store.delete("things")
    assert store.names("things") == [] and not store.exists("things/a")


def test_a_folder_is_finished_by_renaming(store):
    ref = store.put_state("rounds/.0001.partial/model", state())
    store.write_json("rounds/.0001.partial/round.json", 1)
    store.finish_folder("rounds/.0001.partial", "rounds/0001")
    assert store.names("rounds") == ["0001"] and store.names("rounds/0001") == ["model", "round.json"]
    assert store.holds(dataclasses.replace(ref, uri="rounds/0001/model"))


def test_a_file_of_a_store_can_be_had_as_a_local_path(store):
    store.write_bytes("a/b.bin", b"123")
    with store.local("a/b.bin") as path:
        assert path.read_bytes() == b"123" and path.name == "b.bin"
    assert path.exists() == store.is_local, "a fetched copy is removed again"
    with pytest.raises(UserError, match="missing"), store.local("a/c.bin"):
        pass


def test_no_reader_sees_half_a_file(tmp_path):
    """A reader in another thread sees the old bytes or the new ones, and after the last write nothing else is left."""
    store, size, seen, stop = Store(tmp_path), 400_000, set(), threading.Event()
    store.write_bytes("file", b"0" * size)

    def read():
        while not stop.is_set():
            data = (tmp_path / "file").read_bytes()
            seen.add((len(data), len(set(data))))

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(60):
        store.write_bytes("file", str(i % 10).encode() * size)
    stop.set()
    reader.join()
    assert seen == {(size, 1)}
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.write_json("record.json", {"old": 1})

    def broken(self, data):
        with self.open("wb") as file:
            file.write(data[:3])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(OSError, match="no space"):
        store.write_json("record.json", {"new": 2})
    assert json.loads((tmp_path / "record.json").read_text()) == {"old": 1}


def test_threads_that_write_the_same_file_do_not_disturb_each_other(tmp_path):
    store, failures = Store(tmp_path), []

    def write(number):
        try:
            for _ in range(30):
                store.put_state("same.safetensors", state(number))
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and [p.name for p in tmp_path.iterdir()] == ["same.safetensors"]
    ref = ModelRef("same.safetensors", "", 0)
    assert state_digest(store.get_state(ref, verify=False)) in {state_digest(state(n)) for n in range(4)}


def test_a_store_can_be_moved(tmp_path):
    ref = Store(tmp_path / "here").put_state("updates/a.safetensors", state())
    (tmp_path / "here").rename(tmp_path / "there")
    assert Store(tmp_path / "there").holds(ref)
