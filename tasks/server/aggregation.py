"""Averaging of client models: weights (FMMAN's eqs 14 and 15), the mean, BatchNorm statistics.

See docs/algorithms/aggregation.md. States are read tensor by tensor, so the server holds one tensor of every client in
memory, not every model.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.store import Store, digest_of

if TYPE_CHECKING:
    from tasks.core.context import RunContext

BnPolicy = Literal["avg", "total_variance", "local", "frozen"]
Rule = Callable[[Sequence[Tensor], Sequence[float]], Tensor]


def sample_count_weights(sizes: Sequence[int]) -> list[float]:
    """Return M_i / sum M: FedAvg's weights, and FMMAN's eq 14 inside a cluster."""
    total = sum(sizes)
    if total <= 0 or min(sizes) < 0:
        raise UserError("no client has training images", where="aggregation", found=list(sizes))
    return [size / total for size in sizes]


def loss_weights(
    losses: Sequence[float], sizes: Sequence[int], mode: Literal["loss_size", "size", "loss"] = "loss_size"
) -> tuple[list[float], str]:
    """Return FMMAN's eq 15, normalised: loss_i M_i / sum_j loss_j M_j. A higher loss gives a larger weight.

    As printed the products sum to about 1/N and would shrink the model.

    Args:
        losses: Mean loss per counted label of each client, never a sum over its images.
        sizes: Training images M_i.
        mode: ``size`` ignores the losses (FedAvg), ``loss`` the sample counts.

    Returns:
        The weights, which sum to 1, and a note: empty, or why sample counts alone were used.
    """
    if mode == "size":
        return sample_count_weights(sizes), ""
    products = [loss * (size if mode == "loss_size" else 1) for loss, size in zip(losses, sizes, strict=True)]
    total = sum(products)
    if any(not math.isfinite(loss) or loss < 0 for loss in losses) or not (math.isfinite(total) and total > 0):
        return sample_count_weights(
            sizes
        ), f"losses {list(losses)} cannot be weights; models were weighted by sample count"
    return [product / total for product in products], ""


def weighted_mean(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return sum_i a_i v_i in float64; the caller casts back. Same shape as each value."""
    total = torch.zeros(values[0].shape, dtype=torch.float64)
    for value, weight in zip(values, weights, strict=True):
        total.add_(value.to(torch.float64), alpha=weight)
    return total


def moved(start: Tensor, values: Sequence[Tensor], coefficients: Sequence[float]) -> Tensor:
    """Return W + sum_i f_i (theta_i - W) in float64; the coefficients need not sum to 1. Same shape as each value."""
    return weighted_mean([start, *values], [1.0 - math.fsum(coefficients), *coefficients])


def check_weights(weights: Sequence[float]) -> None:
    """Refuse averaging weights that are negative or do not sum to 1 within 1e-9."""
    if not (abs(math.fsum(weights) - 1.0) <= 1e-9 and min(weights) >= 0):  # so written, NaN is refused too
        raise UserError("averaging weights must sum to 1", where="aggregation", found=list(weights))


def combine(readers: Sequence[Any], weights: Sequence[float], rule: Rule, bn_policy: str) -> dict[str, Tensor]:
    """Combine many states into one, name by name.

    Floating tensors go through ``rule``; integer buffers (``num_batches_tracked``) take the maximum, because a
    float mean truncates on load. With ``total_variance`` a running variance becomes the variance of the pooled
    statistics: mean(var + mean^2) - mean(mean)^2.

    Args:
        readers: Open states with ``keys()`` and ``get_tensor(name)``, in client-id order.
        weights: One weight per state, summing to 1.
        rule: ``rule(values, weights) -> tensor`` for one name.
        bn_policy: BatchNorm policy; only ``total_variance`` matters here.

    Returns:
        Name -> tensor, with the dtypes of the first state.
    """
    check_weights(weights)
    out = {}
    names = sorted(readers[0].keys())
    if any(sorted(reader.keys()) != names for reader in readers):
        raise UserError("models with different tensors cannot be combined", where="aggregation")
    for name in names:
        values = [reader.get_tensor(name) for reader in readers]
        if any(value.shape != values[0].shape for value in values):
            raise UserError("tensors of different shapes cannot be combined", where=f"aggregation: {name}")
        if not values[0].is_floating_point():
            out[name] = torch.stack(values).amax(dim=0)
            continue
        if bn_policy == "total_variance" and name.endswith(".running_var"):
            means = [reader.get_tensor(name.replace(".running_var", ".running_mean")) for reader in readers]
            out[name] = pooled_variance(means, values, weights).to(values[0].dtype)
            continue
        out[name] = rule(values, weights).to(values[0].dtype)
    return out


def pooled_variance(means: Sequence[Tensor], variances: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the variance of the mixture of the clients' distributions (law of total variance), float64."""
    mean = weighted_mean(means, weights)
    second = weighted_mean([v.double() + m.double().square() for v, m in zip(variances, means, strict=True)], weights)
    return (second - mean.square()).clamp_(min=0)


def aggregate(
    context: "RunContext", refs: Sequence[ModelRef], weights: Sequence[float], rule: Rule = weighted_mean
) -> ModelRef:
    """Combine stored states into a new one, or return the finished one.

    Args:
        context: The run.
        refs: The clients' weights in client-id order.
        weights: One per state, summing to 1.
        rule: Combines the values of one name: a module-level function, or ``functools.partial`` of one.

    Returns:
        Reference of the combined state.

    Raises:
        UserError: If the rule is a lambda or a nested function, whose settings would not show in its name.
    """
    store = context.open_store()
    inputs = [ref.digest for ref in refs], list(weights), rule_name(rule)
    name = f"updates/combined-{digest_of(context.fingerprint, *inputs)[:32]}"
    if done := find_reference(store, name):
        return done
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(store.open_state(ref)) for ref in refs]
        state = combine(readers, weights, rule, context.bn_policy)
    ref = store.put_state(f"{name}.safetensors", state)
    store.write_json(f"{name}.json", {"uri": ref.uri, "digest": ref.digest, "bytes": ref.bytes})
    return ref


def rule_name(rule: Rule) -> list[Any]:
    """Return the identity of a rule: module, name and, for a partial, its arguments."""
    if isinstance(rule, functools.partial):
        return [*rule_name(rule.func), list(rule.args), sorted(rule.keywords.items())]
    name = f"{rule.__module__}.{rule.__qualname__}"
    if "<" in name:
        raise UserError(
            "a rule must be a module-level function",
            where="Federation.combine(rule=...)",
            expected="a module-level function, or functools.partial(function, setting=value)",
            found=name,
        )
    return [name]


def find_reference(store: Store, name: str) -> ModelRef | None:
    """Return the finished state of that name if it exists and verifies."""
    if not store.exists(f"{name}.json"):
        return None
    try:
        ref = ModelRef.of(store.read_json(f"{name}.json"))
    except (UserError, KeyError, TypeError, ValueError):  # damaged: compute it again
        return None
    return ref if store.holds(ref) else None
