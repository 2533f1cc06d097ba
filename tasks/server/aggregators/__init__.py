"""How the server combines updates into models, one module per aggregator, with the parts of ``AggregatorModule``.

A new one that users choose by ``aggregation.name`` is one module here and one line in ``AGGREGATORS``. A method's own
is a module of the method, named by its dotted path: ``AggregatorSpec("tasks.server.scaffold", {...})``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from models.errors import UserError
from models.settings.section import Section
from models.weights.state_spec import TensorSpec
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.server.aggregators.mixing import Mixing, SparseRow

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from tasks.server.aggregators.received import Received

__all__ = [
    "AGGREGATORS",
    "Aggregator",
    "AggregatorModule",
    "AggregatorSpec",
    "Combined",
    "Mixing",
    "SparseRow",
    "TensorJob",
    "load_aggregator",
    "sorted_values",
    "stacked",
    "start_of",
]

AGGREGATORS: dict[str, str] = {
    "mean": "tasks.server.aggregators.mean",
    "fedavgm": "tasks.server.aggregators.fedavgm",
    "fedadagrad": "tasks.server.aggregators.fedadagrad",
    "fedadam": "tasks.server.aggregators.fedadam",
    "fedyogi": "tasks.server.aggregators.fedyogi",
    "ema": "tasks.server.aggregators.ema",
    "median": "tasks.server.aggregators.median",
    "trimmed_mean": "tasks.server.aggregators.trimmed_mean",
    "geometric_median": "tasks.server.aggregators.geometric_median",
    "krum": "tasks.server.aggregators.krum",
    "multi_krum": "tasks.server.aggregators.multi_krum",
}


@dataclass(frozen=True)
class TensorJob:
    """One tensor, or a range of its entries, that is combined into one model's.

    All tensors have one shape: [P], P entries in a row, unless the aggregator is not ``elementwise``. ``values``,
    ``start`` and ``means`` are as they were sent, in the network's floating type (float32 as a rule). An aggregator
    casts to float64 itself before it sums over clients, as ``Aggregator.average`` does; ``aggregate`` casts back.

    Attributes:
        name: The tensor's name.
        spec: What it is.
        values: The n tensors of the updates with a weight above 0, in client-id order.
        weights: Their weights, n Python floats that sum to 1.
        clients: Their positions among all N updates.
        start: The tensor of the model that they started from; ``None`` where there is none.
        before: The aggregator's tensors of the previous round for this one, by their own names, in the type in which
            ``Combined.after`` had them; empty at first.
        means: The running means that belong to running variances, where variances are pooled.
        model: Name of the model that comes out.
    """

    name: str
    spec: TensorSpec
    values: "Sequence[Tensor]"
    weights: Sequence[float]
    clients: Sequence[int]
    start: "Tensor | None"
    before: "Mapping[str, Tensor]"
    means: "Sequence[Tensor] | None" = None
    model: str = "global"


@dataclass(frozen=True)
class Combined:
    """What becomes of a tensor.

    Attributes:
        value: The new tensor, of the same shape; it is cast to the type of the updates'.
        after: The aggregator's tensors for the next round, by names of its own, of the same shape. They are stored as
            ``<name>/<tensor>``, under the name "" as ``<tensor>``.
    """

    value: "Tensor"
    after: "Mapping[str, Tensor]" = field(default_factory=dict)


class Aggregator:
    """FedAvg: one model, the mean with the prior weights. The others derive from it.

    An instance serves one aggregation: ``weigh`` comes first and may keep what ``combine`` needs.

    Attributes:
        elementwise: Each entry of a combined tensor depends on the same entry of the updates' only, so a tensor can be
            combined in ranges; else ``combine`` is given whole tensors of all clients, in their own shape.
        evaluated: Name of the model that is evaluated and exported, among those that come out.
    """

    elementwise = True
    evaluated = "global"

    def weigh(self, received: "Received") -> Mixing:
        """Return the models that come out and each update's weight: the first phase, which may look at everything.

        Default: one model, ``global``, with the prior weights.
        """
        return Mixing(("global",), (received.weights,))

    def combine(self, tensor: TensorJob) -> Combined:
        """Return one tensor of one model: the second phase, tensor by tensor. Default: the weighted mean.

        Integer tensors do not come here: they take the maximum (docs/algorithms/aggregation.md).
        """
        return Combined(self.average(tensor))

    def pools_variances(self, model: str, bn_policy: str) -> bool:
        """Return whether running variances of a model are pooled: as ``federation.bn_policy`` says.

        Args:
            model: Name of the model that comes out.
            bn_policy: The setting.
        """
        del model
        return bn_policy == "total_variance"

    def average(self, tensor: TensorJob) -> "Tensor":
        """Return the weighted mean in float64; of running variances with ``means`` the pooled variance."""
        from tasks.server.aggregation import pooled_variance, weighted_mean

        if tensor.means is not None:
            return pooled_variance(tensor.means, tensor.values, tensor.weights)
        return weighted_mean(tensor.values, tensor.weights)


class AggregatorModule(Protocol):
    """The parts of an aggregator's module; the last two are optional.

    Attributes:
        DESCRIPTION: One line, with the source.
        Settings: Its settings.
        USES_WEIGHTS: Whether the weights of the clients count; True by default.
    """

    DESCRIPTION: str
    Settings: type[Section]
    USES_WEIGHTS: bool

    def make(self, settings: Any) -> Aggregator:
        """Return the aggregator of one aggregation."""
        ...

    def check(self, settings: Any, participants: int | None) -> None:
        """Raise a ValueError if the settings make no sense for so many updates; ``None``: not known yet.

        By default any number is accepted.
        """
        ...


def accept_any(settings: Any, participants: int | None) -> None:
    """Accept all settings: the default of ``check``."""
    del settings, participants


def load_aggregator(name: str) -> AggregatorModule:
    """Return the module of an aggregator.

    Raises:
        UserError: If there is none of that name.
    """
    if name not in AGGREGATORS and "." not in name:
        raise UserError("no such aggregator", where="aggregation.name", expected=sorted(AGGREGATORS), found=name)
    module = import_module(AGGREGATORS.get(name, name))
    vars(module).setdefault("check", accept_any)
    vars(module).setdefault("USES_WEIGHTS", True)
    return cast("AggregatorModule", module)


def start_of(tensor: TensorJob) -> "Tensor":
    """Return the tensor that training started from.

    Raises:
        UserError: If the aggregation has no start model.
    """
    if tensor.start is None:
        raise UserError("the aggregator needs the model that clients started from", where="aggregation.name")
    return tensor.start


def stacked(values: "Sequence[Tensor]", dtype: "torch.dtype | None" = None) -> "Tensor":
    """Return tensors of one shape as one [n, ...], cast one by one."""
    import torch

    out = torch.empty((len(values), *values[0].shape), dtype=dtype or values[0].dtype)
    for row, value in zip(out, values, strict=True):
        row.copy_(value)
    return out


def sorted_values(values: "Sequence[Tensor]") -> "Tensor":
    """Return the values of each entry in ascending order, [n, P] of n tensors [P]; NumPy sorts ten times faster."""
    import torch

    dtype = torch.float32 if values[0].dtype in (torch.bfloat16, torch.float16) else values[0].dtype
    columns = torch.empty((values[0].numel(), len(values)), dtype=dtype)
    for i, value in enumerate(values):
        columns[:, i] = value
    columns.numpy().sort(axis=1)
    return columns.T
