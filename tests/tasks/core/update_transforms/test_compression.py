"""Compressed updates by hand, error feedback, and the bytes that are counted."""

import pytest
import torch

from tasks.core.update_transforms import bf16, int8, topk, transform_update
from tasks.core.update_transforms.encoding import Encoding
from tests.support.updates import SCHEMA, random_state

PARAMETERS = [name for name, spec in SCHEMA.items() if spec.kind == "parameter"]
ENTRIES = sum(random_state(0)[name].numel() for name in PARAMETERS)
ALL = [
    bf16.Settings(),
    int8.Settings(),
    int8.Settings(rounding="stochastic"),
    topk.Settings(fraction=0.2),
]


def go(state, start, *specs, memory=None, seed=1):
    return transform_update(state, start, specs, SCHEMA, torch.Generator().manual_seed(seed), "a", memory or {})


def change(state, start):
    return torch.cat([(state[name] - start[name]).flatten() for name in PARAMETERS])


def test_int8_by_hand():
    # s = 1.27 / 127 = 0.01: levels 127, -50, 25.4 -> 25, 0.4 -> 0
    found = int8.quantised(torch.tensor([1.27, -0.5, 0.254, 0.004]))
    assert torch.allclose(found, torch.tensor([1.27, -0.5, 0.25, 0.0]), atol=1e-6)


def test_int8_stochastic_by_hand():
    draws = torch.tensor([0.0, 0.0, 0.7, 0.5])  # floor(25.4 + 0.7) = 26, floor(0.4 + 0.5) = 0
    found = int8.quantised(torch.tensor([1.27, -0.5, 0.254, 0.004]), draws)
    assert torch.allclose(found, torch.tensor([1.27, -0.5, 0.26, 0.0]), atol=1e-6)


def test_stochastic_rounding_has_the_right_mean():
    values = torch.full((20_000,), 0.0042)
    values[0] = 1.27
    draws = torch.rand(20_000, generator=torch.Generator().manual_seed(3))
    assert int8.quantised(values, draws)[1:].mean() == pytest.approx(0.0042, abs=2e-4)


@pytest.mark.parametrize("value", [torch.zeros(3), torch.zeros(0), torch.zeros(())])
def test_int8_of_nothing_is_nothing(value):
    assert torch.equal(int8.quantised(value), value)


def test_topk_by_hand():
    found = topk.largest(torch.tensor([0.5, -3.0, 2.0, -0.1, 2.0, 1.0]), 2)
    assert torch.equal(found, torch.tensor([0.0, -3.0, 2.0, 0.0, 0.0, 0.0]))  # of the two 2.0 the first
    assert topk.largest(torch.tensor([1.0, -1.0, 1.0]), 3).tolist() == [1.0, -1.0, 1.0]


@pytest.mark.parametrize(("fraction", "entries", "sent"), [(0.01, 1000, 10), (1e-6, 1000, 1), (1.0, 7, 7), (0.5, 1, 1)])
def test_the_number_of_entries(fraction, entries, sent):
    assert topk.entries_sent(fraction, entries) == sent


def test_topk_is_over_all_parameters_together():
    start = random_state(0)
    state = dict(start) | {PARAMETERS[0]: start[PARAMETERS[0]] + 1.0}
    count = topk.entries_sent(0.2, ENTRIES)
    out = go(state, start, topk.Settings(fraction=0.2)).state
    assert int((change(out, start) != 0).sum()) == count
    assert int((out[PARAMETERS[0]] != start[PARAMETERS[0]]).sum()) == count


def test_bf16_by_hand():
    # 8 significant bits: 1 + 2^-9 becomes 1, 1 + 3 * 2^-8 becomes 1 + 2^-6 (a tie, to even)
    found = bf16.rounded({"w": torch.tensor([1 + 2**-9, 1 + 3 * 2**-8])})["w"]
    assert found.tolist() == [1.0, 1 + 2**-6]


def test_everything_sent_is_the_update_itself():
    start, state = random_state(0), random_state(1)
    out = go(state, start, topk.Settings(fraction=1.0, error_feedback=False))
    assert torch.allclose(change(out.state, start), change(state, start), atol=1e-6)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: str(spec))
def test_what_is_lost_is_kept_for_the_next_update(spec):
    start, state = random_state(0), random_state(1)
    whole = change(state, start)
    done = go(state, start, spec)
    error = torch.cat([done.memory[f"0-{spec.name}/{name}"].flatten() for name in PARAMETERS])
    assert error.abs().max() > 0
    assert torch.allclose(change(done.state, start) + error, whole, atol=1e-5)
    later = go(state, start, spec, memory=done.memory, seed=2)  # the same change once more
    rest = torch.cat([later.memory[f"0-{spec.name}/{name}"].flatten() for name in PARAMETERS])
    both = change(done.state, start) + change(later.state, start)
    assert torch.allclose(both + rest, 2 * whole, atol=1e-5)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: str(spec))
def test_without_feedback_nothing_is_kept_and_buffers_are_untouched(spec):
    start, state = random_state(0), random_state(1)
    done = go(state, start, spec.model_copy(update={"error_feedback": False}))
    assert done.memory == {}
    assert all(done.state[name] is state[name] for name in SCHEMA.keys() - set(PARAMETERS))
    assert all(done.state[name].dtype == value.dtype for name, value in state.items())


def test_the_bytes():
    start, state = random_state(0), random_state(1)
    count, tensors = topk.entries_sent(0.2, ENTRIES), len(PARAMETERS)

    def found(*specs):
        return go(state, start, *specs).encoding

    assert found() is None
    assert found(bf16.Settings()).bytes == 2 * ENTRIES
    assert found(int8.Settings()).bytes == ENTRIES + 4 * tensors
    bitmap = min(32 * count, ENTRIES)  # bits
    assert found(topk.Settings(fraction=0.2)) == Encoding(count, position_bits=bitmap)
    both = found(topk.Settings(fraction=0.2), int8.Settings())
    assert both.bytes == -(-(8 * count + bitmap) // 8) + 4 * tensors
    assert both == found(int8.Settings(), topk.Settings(fraction=0.2))


def test_few_of_many_are_indices():
    assert Encoding(10, position_bits=min(32 * 10, 100_000)).bytes == 10 * 4 + 10 * 4
