"""Update transforms: clipping and flipping by hand, order, what a transform keeps, untouched buffers."""

import pytest
import torch

from models.errors import UserError
from tasks.core import update_transforms
from tasks.core.update_transforms import clip_norm, load_transform, sign_flip, transform_update
from tests.support import carried
from tests.support.updates import SCHEMA, random_state

PARAMETERS = [name for name, spec in SCHEMA.items() if spec.kind == "parameter"]


def go(state, start, *specs, **options):
    return transform_update(state, start, specs, SCHEMA, torch.Generator().manual_seed(1), **options).state


def go_on(state, start, memory, *specs):
    """The update after its transforms, and what they keep."""
    done = transform_update(state, start, specs, SCHEMA, torch.Generator().manual_seed(1), memory=memory)
    return done.state, done.memory


def changed(start, **changes):
    return start | {name.replace("__", "."): start[name.replace("__", ".")] + c for name, c in changes.items()}


def test_clipping_by_hand():
    start = random_state(0)
    # twelve weights move by 1, three biases by 2: the norm is sqrt(12 + 12)
    state = changed(start, fc__weight=1.0, fc__bias=-2.0, bn__running_mean=100.0, bn__num_batches_tracked=3)
    assert clip_norm.change_norm(state, start, PARAMETERS) == pytest.approx(24**0.5)
    out = go(state, start, clip_norm.Settings(max_norm=6**0.5))
    assert torch.allclose(out["fc.weight"], start["fc.weight"] + 0.5, atol=1e-6)
    assert torch.allclose(out["fc.bias"], start["fc.bias"] - 1.0, atol=1e-6)
    assert clip_norm.change_norm(out, start, PARAMETERS) == pytest.approx(6**0.5, rel=1e-6)
    for name in SCHEMA.keys() - set(PARAMETERS):
        assert out[name] is state[name], "buffers are untouched"
    assert all(out[name].dtype == state[name].dtype for name in out)


@pytest.mark.parametrize("max_norm", [24**0.5 + 1e-3, 1e9])
def test_a_short_update_is_not_changed_at_all(max_norm):
    start = random_state(0)
    state = changed(start, fc__weight=1.0, fc__bias=-2.0)
    out = go(state, start, clip_norm.Settings(max_norm=max_norm))
    assert all(out[name] is state[name] for name in state)


def test_flipping_by_hand_at_the_named_clients_only():
    start = random_state(0)
    state = changed(start, fc__weight=1.0, bn__running_mean=5.0)
    spec = sign_flip.Settings(clients=("bad", "worse"), scale=3.0)
    out = go(state, start, spec, client="bad")
    assert torch.allclose(out["fc.weight"], start["fc.weight"] - 3.0, atol=1e-6)
    assert torch.equal(out["fc.bias"], start["fc.bias"]) and out["bn.running_mean"] is state["bn.running_mean"]
    assert all(go(state, start, spec, client="good")[name] is state[name] for name in state)
    sign_flip.check(spec, {"bad", "worse", "good"})
    with pytest.raises(ValueError, match="names worse, which the partition does not have"):
        sign_flip.check(spec, {"bad", "good"})


def test_transforms_are_applied_in_their_order():
    start = random_state(0)
    state = changed(start, fc__weight=1.0)
    clip, flip = clip_norm.Settings(max_norm=1.0), sign_flip.Settings(clients=("a",), scale=10.0)
    one = go(state, start, clip, flip, client="a")
    other = go(state, start, flip, clip, client="a")
    assert clip_norm.change_norm(one, start, PARAMETERS) == pytest.approx(10, rel=1e-5)
    assert clip_norm.change_norm(other, start, PARAMETERS) == pytest.approx(1, rel=1e-5)
    assert all(value is state[name] for name, value in go(state, start).items())


@pytest.fixture
def rounding(monkeypatch):
    """The settings of a transform that keeps tensors."""
    carried.register(monkeypatch)
    return carried.Settings()


def test_a_transform_draws_from_the_generator_and_keeps_tensors_for_the_next_update(rounding):
    start, state = random_state(0), random_state(1)
    first, rest = go_on(state, start, {}, rounding)
    assert set(rest) == {"0-carried/rest"}
    assert torch.allclose(first["fc.bias"] + rest["0-carried/rest"], state["fc.bias"])
    assert torch.equal(go_on(state, start, {}, rounding)[0]["fc.bias"], first["fc.bias"])
    second, later = go_on(state, start, rest, rounding)
    total = state["fc.bias"] + rest["0-carried/rest"]
    assert torch.allclose(second["fc.bias"] + later["0-carried/rest"], total)
    assert set(go_on(state, start, {}, rounding, rounding)[1]) == {"0-carried/rest", "1-carried/rest"}
    with pytest.raises(UserError, match=r"transform carried keeps tensors from update to update"):
        go(state, start, rounding)


@pytest.mark.parametrize("name", update_transforms.TRANSFORMS)
def test_a_transform_names_itself_and_has_bounds(name):
    module = load_transform(name)
    assert module.DESCRIPTION and module.Settings.model_fields["name"].default == name
    for values in ({"max_norm": 0}, {"clients": []}, {"clients": ["a"], "scale": 0}):
        with pytest.raises(ValueError, match="validation error"):
            module.Settings(**values)
