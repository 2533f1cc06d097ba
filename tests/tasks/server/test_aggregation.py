"""Aggregation: weights of eqs 14 and 15, the mean, BatchNorm statistics."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from models.errors import UserError
from tasks.core.store import Store
from tasks.server.aggregation import (
    aggregate,
    check_weights,
    combine,
    loss_weights,
    pooled_variance,
    rule_name,
    sample_count_weights,
    weighted_mean,
)


class Held:
    """A state as the server reads it."""

    def __init__(self, **tensors):
        self.tensors = {name.replace("__", "."): value for name, value in tensors.items()}

    def keys(self):
        return self.tensors.keys()

    def get_tensor(self, name):
        return self.tensors[name]


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def maximum(values, weights):
    del weights
    return torch.stack(list(values)).amax(dim=0)


@pytest.fixture
def context(tmp_path):
    return SimpleNamespace(open_store=lambda: Store(tmp_path), fingerprint="test", bn_policy="avg")


def test_sample_count_weights_are_fractions():
    assert sample_count_weights([10, 30]) == [0.25, 0.75]
    for sizes in ([0, 0], [4, -1]):
        with pytest.raises(UserError, match="no client has training images"):
            sample_count_weights(sizes)


def test_eq15_by_hand():
    # products 2*10, 1*30, 5*10 of 100
    assert loss_weights([2.0, 1.0, 5.0], [10, 30, 10]) == (pytest.approx([0.2, 0.3, 0.5]), "")
    assert loss_weights([2.0, 1.0, 5.0], [10, 30, 10], "size") == (pytest.approx([0.2, 0.6, 0.2]), "")
    assert loss_weights([2.0, 1.0, 5.0], [10, 30, 10], "loss") == (pytest.approx([0.25, 0.125, 0.625]), "")


@pytest.mark.parametrize("mode", ["loss_size", "loss", "size"])
def test_loss_weights_sum_to_one_and_a_higher_loss_weighs_more(mode):
    rng = np.random.default_rng(3)
    for count in (1, 2, 20, 200):
        losses, sizes = rng.uniform(0.01, 3, count).tolist(), rng.integers(1, 5000, count).tolist()
        weights, note = loss_weights(losses, sizes, mode)
        assert abs(math.fsum(weights) - 1) < 1e-12 and not note
        check_weights(weights)
    first, _ = loss_weights([1.0, 1.0], [5, 5], mode)
    second, _ = loss_weights([2.0, 1.0], [5, 5], mode)
    assert (second[0] > first[0]) == (mode != "size")


def test_equal_losses_are_fedavg():
    assert loss_weights([0.7] * 3, [10, 30, 60])[0] == pytest.approx(sample_count_weights([10, 30, 60]))


@pytest.mark.parametrize("losses", [[math.nan, 1.0], [math.inf, 1.0], [-0.1, 1.0], [0.0, 0.0]])
def test_unusable_losses_fall_back_to_sample_counts_with_a_note(losses):
    weights, note = loss_weights(losses, [10, 30])
    assert weights == [0.25, 0.75]
    assert "by sample count" in note and str(losses[0]) in note


def test_a_huge_reported_loss_must_not_make_the_weights_nan():
    weights, _ = loss_weights([1e308, 1.0], [50, 50])
    assert all(math.isfinite(weight) for weight in weights) and math.fsum(weights) == pytest.approx(1.0)


@pytest.mark.parametrize("weights", [[0.5, 0.5 + 1e-6], [1.5, -0.5], [0.5, 0.4], [math.nan, math.nan]])
def test_invalid_weights_are_refused(weights):
    with pytest.raises(UserError, match="must sum to 1"):
        check_weights(weights)
    with pytest.raises(UserError, match="must sum to 1"):
        combine([Held(w=torch.ones(1))] * 2, weights, weighted_mean, "avg")


def test_the_mean_against_a_loop():
    values, weights = [randn(2, 3, seed=i) for i in range(3)], [0.2, 0.3, 0.5]
    mean = weighted_mean(values, weights)
    assert mean.dtype == torch.float64
    for i in range(2):
        for j in range(3):
            by_hand = sum(a * float(v[i, j]) for a, v in zip(weights, values, strict=True))
            assert mean[i, j].item() == pytest.approx(by_hand, rel=1e-12)


def test_the_mean_is_summed_in_float64():
    # In float32 the small value would be lost beside 2^24 and the result be 0.
    values = [torch.tensor([2.0**24]), torch.tensor([1.0]), torch.tensor([-(2.0**24)])]
    assert weighted_mean(values, [1.0, 1.0, 1.0]).item() == 1.0


@pytest.mark.parametrize("policy", ["avg", "local", "frozen", "total_variance"])
def test_equal_models_give_the_same_model_whatever_the_losses(policy):
    state = Held(w=randn(50), bn__running_mean=randn(4), bn__running_var=randn(4).square(), bn__n=torch.tensor(7))
    weights, _ = loss_weights([0.123, 4.56, 0.9], [3, 17, 80])
    out = combine([state] * 3, weights, weighted_mean, policy)
    assert out.keys() == state.keys()
    for name, value in out.items():
        assert value.dtype == state.get_tensor(name).dtype
        assert torch.allclose(value, state.get_tensor(name), rtol=1e-6, atol=1e-6 * (policy == "total_variance"))
    assert torch.equal(out["w"], state.get_tensor("w"))


def test_integers_stay_integers_and_take_the_maximum():
    counts = [torch.tensor(n) for n in (9, 10, 3)]
    out = combine([Held(bn__num_batches_tracked=n) for n in counts], [0.2, 0.3, 0.5], weighted_mean, "avg")
    assert out["bn.num_batches_tracked"].dtype == torch.int64 and out["bn.num_batches_tracked"] == 10


def test_half_precision_states_keep_their_dtype():
    out = combine([Held(w=torch.ones(2, dtype=torch.bfloat16))] * 2, [0.5, 0.5], weighted_mean, "avg")
    assert out["w"].dtype == torch.bfloat16


def test_total_variance_is_the_variance_of_the_pooled_values():
    rng = np.random.default_rng(0)
    parts = [rng.normal(loc, scale, size) for loc, scale, size in ((0, 1, 30), (5, 2, 60), (-3, 0.5, 10))]
    weights = [len(part) / 100 for part in parts]
    states = [
        Held(
            bn__running_mean=torch.tensor([part.mean()]),
            bn__running_var=torch.tensor([part.var()]),
            other_var=torch.tensor([part.var()]),
        )
        for part in parts
    ]
    pooled = np.concatenate(parts)
    out = combine(states, weights, weighted_mean, "total_variance")
    assert out["bn.running_mean"].item() == pytest.approx(pooled.mean())
    assert out["bn.running_var"].item() == pytest.approx(pooled.var())
    plain = combine(states, weights, weighted_mean, "avg")
    within = sum(w * part.var() for w, part in zip(weights, parts, strict=True))
    assert plain["bn.running_var"].item() == out["other_var"].item() == pytest.approx(within)
    assert within < pooled.var() - 1


def test_pooled_variance_is_never_negative():
    means, variances = [torch.tensor([1e4 + 1e-3])] * 3, [torch.tensor([0.0])] * 3
    assert pooled_variance(means, variances, [0.2, 0.3, 0.5]).item() >= 0


def put(store, name, seed):
    return store.put_state(name, {"w": randn(3, 4, seed=seed), "n": torch.tensor(seed)})


def test_the_average_of_one_client_is_its_model(context):
    ref = put(context.open_store(), "a.safetensors", 1)
    assert aggregate(context, [ref], [1.0]).digest == ref.digest


def test_an_average_is_stored_once(context):
    store = context.open_store()
    refs = [put(store, f"{i}.safetensors", i) for i in range(3)]
    weights = [0.2, 0.3, 0.5]
    first = aggregate(context, refs, weights)
    state = store.get_state(first)
    assert torch.allclose(state["w"], sum(a * randn(3, 4, seed=i) for i, a in enumerate(weights)), atol=1e-6)
    store.delete("0.safetensors")  # were it computed again, this would be missed
    assert aggregate(context, refs, weights) == first
    store.write_bytes(first.uri, b"damaged")
    put(store, "0.safetensors", 0)
    assert aggregate(context, refs, weights) == first and store.holds(first)


def test_another_weight_rule_or_run_is_another_average(context):
    store = context.open_store()
    refs = [put(store, f"{i}.safetensors", i) for i in range(2)]
    other = SimpleNamespace(**vars(context) | {"fingerprint": "other"})
    made = [
        aggregate(context, refs, [0.5, 0.5]),
        aggregate(context, refs, [0.4, 0.6]),
        aggregate(context, refs, [0.5, 0.5], maximum),
        aggregate(other, refs, [0.5, 0.5]),
    ]
    assert len({ref.uri for ref in made}) == 4
    assert torch.equal(store.get_state(made[2])["w"], torch.maximum(randn(3, 4, seed=0), randn(3, 4, seed=1)))
    moved = store.put_state("moved.safetensors", store.get_state(refs[0]))
    again = aggregate(context, [dataclasses.replace(moved), refs[1]], [0.5, 0.5])
    assert again == made[0], "where a state lies does not matter"


def cut(values, weights, share):
    """A rule with a setting."""
    del weights
    return torch.stack(list(values)).sort(0).values[int(share * len(values))].double()


def test_rules_differ_by_their_settings_and_nested_functions_are_refused():
    low, high = functools.partial(cut, share=0.0), functools.partial(cut, share=0.5)
    assert rule_name(low) != rule_name(high) and rule_name(low) == rule_name(functools.partial(cut, share=0.0))
    with pytest.raises(UserError, match="module-level function"):
        rule_name(lambda values, weights: values[0])


@pytest.mark.parametrize(
    "other", [{"w": torch.ones(3)}, {"w": torch.ones(2), "v": torch.ones(2)}, {"v": torch.ones(2)}]
)
def test_models_with_different_tensors_are_refused(other, context):
    store = context.open_store()
    refs = [store.put_state("one.safetensors", {"w": torch.ones(2)}), store.put_state("two.safetensors", other)]
    with pytest.raises(UserError, match="cannot be combined"):
        aggregate(context, refs, [0.5, 0.5])
