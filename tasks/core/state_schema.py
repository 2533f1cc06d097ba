"""The state schema: what each tensor of a run's model is, written once beside the initial model.

Aggregators, update checks and update transforms ask it what is a parameter and what is not, instead of building the
network or knowing tensor names. A network class may declare ``STATE_KINDS: ClassVar[dict[str, TensorSpec]]`` for
tensors that differ from the rules of ``schema_of``: by the end of their names, the longest first.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from models.errors import UserError
from models.weights.state_spec import TensorSpec

if TYPE_CHECKING:
    from torch import nn

    from tasks.core.context import RunContext

__all__ = [
    "Schema",
    "TensorSpec",
    "batch_norms",
    "is_frozen",
    "parameters_of",
    "read_schema",
    "schema_of",
    "spec_of",
]

Schema = Mapping[str, TensorSpec]
NAME = "state_schema.json"


def schema_of(model: "nn.Module") -> dict[str, TensorSpec]:
    """Return what each tensor is that clients exchange; frozen parameters are not exchanged.

    Parameters with gradients are parameters, integer buffers counters, other buffers buffers; running variances are
    never negative.
    """
    from torch.nn.modules.batchnorm import _NormBase

    declared: dict[str, TensorSpec] = getattr(type(model), "STATE_KINDS", {})
    trained = {name: value.requires_grad for name, value in model.named_parameters(remove_duplicate=False)}
    variances = {f"{path}.running_var".lstrip(".") for path, m in model.named_modules() if isinstance(m, _NormBase)}
    schema = {}
    for name, value in model.state_dict().items():
        if trained.get(name) is False:
            continue
        ending = max((end for end in declared if name.endswith(end)), key=len, default=None)
        if ending is not None:
            schema[name] = declared[ending]
        elif name in trained:
            schema[name] = TensorSpec("parameter")
        elif value.is_floating_point():
            schema[name] = TensorSpec("buffer", nonnegative=name in variances)
        else:
            schema[name] = TensorSpec("counter")
    return schema


def write_schema(context: "RunContext", model: "nn.Module") -> dict[str, TensorSpec]:
    """Write the schema of the run's network into the run's folder and return it."""
    schema = schema_of(model)
    context.open_store().write_json(NAME, {name: asdict(spec) for name, spec in schema.items()})
    return schema


def read_schema(context: "RunContext") -> dict[str, TensorSpec]:
    """Return the run's schema; of a run that an earlier release began it is made from the network.

    Raises:
        UserError: If the file is damaged.
    """
    from tasks.core.network import build_network

    store = context.open_store()
    if not store.exists(NAME):
        return write_schema(context, build_network(replace(context, device="cpu"), store))
    try:
        return {name: TensorSpec(**values) for name, values in store.read_json(NAME).items()}
    except TypeError as error:
        raise UserError(
            "the run's state schema is damaged", where=store.path(NAME), found=error, hint="remove the file"
        ) from error


def parameters_of(schema: Schema) -> list[str]:
    """Return the sorted names of the trained parameters."""
    return sorted(name for name, spec in schema.items() if spec.kind == "parameter")


def is_frozen(context: "RunContext", name: str) -> bool:
    """Return whether ``train.freeze`` keeps a tensor of the network as it starts."""
    from models.weights.parts import PREFIX

    return context.train.freeze == "backbone" and name.startswith(PREFIX)


def batch_norms(schema: Schema) -> tuple[str, ...]:
    """Return the sorted prefixes of the names of layers with running statistics: those of batch normalisation."""
    ending = "running_var"
    return tuple(sorted(name.removesuffix(ending) for name in schema if name.endswith(f".{ending}")))


def spec_of(schema: Schema, name: str) -> TensorSpec:
    """Return what a tensor is.

    Raises:
        UserError: If the schema does not know it.
    """
    if name not in schema:
        raise UserError("the run's network has no such tensor", where=NAME, found=name)
    return schema[name]
