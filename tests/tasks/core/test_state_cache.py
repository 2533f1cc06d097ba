"""States and frozen networks are read once by a process, and again where their file has changed."""

import dataclasses

import torch

from tasks.core import state_cache
from tasks.core.network import build_network, frozen_network
from tasks.core.state_cache import LastUsed, read_state
from tasks.core.store import Store


def test_the_value_that_was_not_used_for_longest_goes_first(monkeypatch):
    monkeypatch.setattr(state_cache, "LIMIT", 3)
    made, cache = [], LastUsed()

    def get(key):
        return cache.get(key, 1, lambda: made.append(key) or key.upper())

    assert [get(key) for key in "abcad"] == ["A", "B", "C", "A", "D"]
    assert made == ["a", "b", "c", "d"]
    assert [get(key) for key in "ab"] == ["A", "B"]
    assert made == ["a", "b", "c", "d", "b"]


def test_a_value_larger_than_the_limit_is_not_kept(monkeypatch):
    monkeypatch.setattr(state_cache, "LIMIT", 3)
    made, cache = [], LastUsed()
    for _ in range(2):
        assert cache.get("a", 4, lambda: made.append("a") or 1) == 1
    assert made == ["a", "a"]


def test_a_state_is_read_once_until_its_file_changes(tmp_path):
    store = Store(tmp_path)
    ref = store.put_state("model.safetensors", {"w": torch.ones(3)})
    first = read_state(store, ref)
    assert read_state(store, ref) is first
    other = store.put_state("model.safetensors", {"w": torch.zeros(3)})
    assert read_state(store, other)["w"].tolist() == [0, 0, 0]


def test_a_frozen_network_is_shared_and_is_that_of_its_file(make_run):
    context, start = make_run()
    store = context.open_store()
    network = frozen_network(context, store, start)
    assert frozen_network(context, store, start) is network
    assert not network.training
    assert not any(value.requires_grad for value in network.parameters())
    built = build_network(context, store, start).state_dict()
    assert all(torch.equal(value, built[name]) for name, value in network.state_dict().items())


def test_a_frozen_network_is_of_one_run(make_run):
    (one, start), (other, same) = make_run("one"), make_run("other")
    assert start.digest == same.digest
    assert frozen_network(one, one.open_store(), start) is not frozen_network(other, other.open_store(), same)
    narrow = dataclasses.replace(one, classes=tuple(f"x{name}" for name in one.classes))
    assert frozen_network(narrow, one.open_store(), start) is not frozen_network(one, one.open_store(), start)
