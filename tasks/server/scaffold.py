"""SCAFFOLD's server step: the model, and the control variate c of all clients (Karimireddy et al., ICML 2020).

A client's new control variate is c_i - c + (W - theta_i) / (n_i lr) (the regulariser ``scaffold``). The server knows
all but c_i, so it makes the changes itself and nothing travels up beside the model.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.client.regularisers.scaffold import mean_gradient
from tasks.core.records import ModelRef
from tasks.server.aggregation import size_weights
from tasks.server.state_rules import moved, once, opened, parameter_names

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.context import RunContext
    from tasks.core.store import Store


def new_control(control: "Tensor", gradients: "Sequence[Tensor]", shares: Sequence[float]) -> "Tensor":
    """The new c = c + sum_i q_i (c_i_new - c_i), where the change of a client is -c + its mean gradient.

    Args:
        control: c of one parameter, float64.
        gradients: Mean gradients of the clients that took part, float64, same shape.
        shares: q_i: 1 / n of ALL n clients, or M_i / sum M over all. They sum to 1 only if all took part.
    """
    out = control.clone()
    for gradient, share in zip(gradients, shares, strict=True):
        out.add_(gradient - control, alpha=share)
    return out


def control_step(
    context: "RunContext",
    refs: Sequence[ModelRef],
    samples: Sequence[int],
    steps: Sequence[int],
    start: ModelRef,
    control: ModelRef | None,
    weights: Sequence[float],
    shares: Sequence[float],
) -> tuple[ModelRef, ModelRef]:
    """The new model W + sum_i w_i (theta_i - W) and the new c; buffers are averaged by image count.

    Args:
        context: The run; its learning rate is that of the clients' SGD.
        refs: The clients' weights theta_i in client-id order.
        samples: Training images M_i.
        steps: Optimiser steps n_i.
        start: The model W that they started from.
        control: c by names of the trained parameters, ``None``: zero, as in the first round.
        weights: w_i of the participants, summing to 1.
        shares: q_i of the participants among all clients.
    """
    sizes = size_weights(samples)
    inputs = [[ref.digest for ref in (start, *refs)], list(weights), sizes]

    def model(store: "Store") -> "dict[str, Tensor]":
        with opened(store, [start, *refs]) as (sent, *trained):
            return moved(sent, trained, weights, sizes, parameter_names(context), context.bn_policy)

    def variate(store: "Store") -> "dict[str, Tensor]":
        before = store.get_state(control) if control else {}
        out = {}
        with opened(store, [start, *refs]) as (sent, *trained):
            for name in parameter_names(context):
                w = sent.get_tensor(name)
                gradients = [
                    mean_gradient(w.double(), reader.get_tensor(name).double(), n, context.train.lr)
                    for reader, n in zip(trained, steps, strict=True)
                ]
                c = before[name].double() if before else w.double().zero_()
                out[name] = new_control(c, gradients, shares).to(w.dtype)
        return out

    more = [control.digest if control else None, list(steps), context.train.lr, list(shares)]
    return once(context, "control-model", inputs, model), once(context, "control", [*inputs, *more], variate)
