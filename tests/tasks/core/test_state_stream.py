"""Files of weights that are read and written in ranges of entries."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.state_stream import ALIGNED, DTYPES, Layout, StateFile, StateWriter, ranges, write_state
from tasks.core.store import Store, state_bytes, state_digest

STATE = {
    "b.weight": torch.randn(3, 5, generator=torch.Generator().manual_seed(1)),
    "a": torch.tensor(7),
    "c.half": torch.randn(9, generator=torch.Generator().manual_seed(2)).bfloat16(),
    "d.wide": torch.tensor([1.0, 2.0], dtype=torch.float64),
    "e.none": torch.zeros(0, 4),
    "f.flag": torch.tensor([True, False, True]),
}


def written(path, state, step=4):
    writer = StateWriter(path, Layout({name: (value.dtype, tuple(value.shape)) for name, value in state.items()}))
    for name in sorted(state):
        flat = state[name].reshape(-1)
        for start in range(0, max(1, len(flat)), step):
            writer.write(name, flat[start : start + step])
    return writer


def test_what_is_written_in_ranges_is_a_safetensors_file_with_the_states_digest(tmp_path):
    writer = written(tmp_path / "x.safetensors", STATE)
    assert writer.finish() == state_digest(STATE)
    read = load_file(tmp_path / "x.safetensors")
    assert read.keys() == STATE.keys() and all(torch.equal(read[name], value) for name, value in STATE.items())
    assert all(read[name].dtype == value.dtype for name, value in STATE.items())
    store = Store(tmp_path)
    assert store.holds(ModelRef("x.safetensors", state_digest(STATE), writer.layout.bytes))
    assert store.put_state("y.safetensors", STATE).bytes == writer.layout.bytes
    with safe_open(tmp_path / "x.safetensors", "pt") as opened:
        assert opened.metadata() == {"digest": state_digest(STATE)}


def test_ranges_of_a_file_of_safetensors_own(tmp_path):
    save_file(STATE, tmp_path / "x.safetensors", {"digest": "any"})
    file = StateFile(tmp_path / "x.safetensors")
    assert file.entries.keys() == STATE.keys()
    for name, value in STATE.items():
        flat, entry = value.reshape(-1), file.entries[name]
        assert (entry.dtype, entry.shape, entry.numel) == (value.dtype, tuple(value.shape), value.numel())
        assert torch.equal(file.read(name), flat)
        assert torch.equal(file.read(name, 1, entry.numel), flat[1:])
    assert file.read("b.weight", 4, 11).tolist() == STATE["b.weight"].reshape(-1)[4:11].tolist()


def test_ranges_cover_everything_once_and_begin_at_aligned_entries():
    for numel in (0, 1, ALIGNED - 1, ALIGNED, ALIGNED + 1, 5 * ALIGNED + 3):
        for most in (1, ALIGNED + 17, 3 * ALIGNED):
            parts = list(ranges(numel, most))
            assert [i for start, stop in parts for i in (start, stop)] == sorted(i for part in parts for i in part)
            assert sum(stop - start for start, stop in parts) == numel
            assert all(start % ALIGNED == 0 and stop - start <= max(ALIGNED, most) for start, stop in parts)


@pytest.mark.parametrize("content", [b"", b"no weights", b"\x02\0\0\0\0\0\0\0[]", b'\x08\0\0\0\0\0\0\0{"a": 1}'])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a readable safetensors file"):
        StateFile(path)


def test_a_file_that_ends_too_early_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file(STATE, path)
    path.write_bytes(path.read_bytes()[:-4])
    file = StateFile(path)
    with pytest.raises(UserError, match="ends too early"):
        for name in STATE:
            file.read(name)


def test_tensors_are_written_in_name_order_and_completely(tmp_path):
    layout = Layout({"a": (torch.float32, (2,)), "b": (torch.float32, (2,))})
    with pytest.raises(AssertionError, match="name order"):
        StateWriter(tmp_path / "x", layout).write("b", torch.ones(2))
    writer = StateWriter(tmp_path / "y", layout)
    writer.write("a", torch.ones(1))
    with pytest.raises(AssertionError, match="a is not complete"):
        writer.write("b", torch.ones(2))
    with pytest.raises(AssertionError, match="missing"):
        writer.finish()


def test_a_whole_state_is_the_file_that_safetensors_writes(tmp_path):
    state = {f"of {code}": torch.ones(3, 2).to(dtype) for code, dtype in DTYPES.items()}
    state |= {"scalar": torch.tensor(5), "none": torch.zeros(0, 4), 'é "quoted" ü': torch.randn(2, 3, 4)}
    size = write_state(tmp_path / "ours", state, "d" * 64)
    assert size == state_bytes(state)
    assert (tmp_path / "ours").read_bytes() == save(state, metadata={"digest": "d" * 64})


def test_a_network_with_statistics_is_the_file_that_safetensors_writes(tmp_path):
    state = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).state_dict()
    write_state(tmp_path / "ours", state, "0" * 64)
    assert (tmp_path / "ours").read_bytes() == save(state, metadata={"digest": "0" * 64})
