"""A run's network: built, loaded, put into a mode, split into what travels and what stays."""

from typing import TYPE_CHECKING, Protocol

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.state_cache import LastUsed, file_key, read_state
from tasks.core.store import Store

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from models.registry import ModelSpec
    from tasks.core.context import RunContext


class ImageRows(Protocol):
    """Images [N, 3, S, S] uint8 that are read as they are indexed: an array, or rows of a data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: slice, /) -> "np.ndarray": ...


_frozen: "LastUsed[nn.Module]" = LastUsed()
PERSONAL = "model/"  # prefix of a client's own tensors that replace the global model's


def model_spec(context: "RunContext", store: Store) -> "ModelSpec":
    """Return what the run's networks are built for."""
    from models.registry import ModelSpec

    tables = store.get_state(context.tables) if context.tables else {}
    return ModelSpec(context.classes, context.image_size, tables.get("label_table"), tables.get("state_words"))


def build_network(context: "RunContext", store: Store, ref: ModelRef | None = None) -> "nn.Module":
    """Build the run's network on the run's device, with the weights of ``ref`` if given.

    Raises:
        UserError: If the weights do not fit the network.
    """
    from models.build import build_model, load_model

    spec = model_spec(context, store)
    if ref is None:
        return build_model(context.model, spec).to(context.device)
    try:
        model = load_model(context.model, spec, read_state(store, ref))
    except RuntimeError as error:
        raise UserError("weights do not fit the network", where=store.path(ref.uri), found=error) from error
    return model.to(context.device)


def frozen_network(context: "RunContext", store: Store, ref: ModelRef) -> "nn.Module":
    """Return the network with the weights of ``ref`` in eval mode, without gradients.

    Trainings of one process share it: callers change nothing about it.

    Raises:
        UserError: If the weights do not fit the network.
    """

    def build() -> "nn.Module":
        return build_network(context, store, ref).eval().requires_grad_(False)

    key = file_key(store, ref)
    if key is None:
        return build()
    run = context.model.model_dump_json(), context.tables, context.classes, context.image_size, context.device
    return _frozen.get((key, run), ref.bytes, build)


def personal_tensors(store: Store, ref: ModelRef) -> "dict[str, Tensor]":
    """Return a client's own tensors by the names that they have in the network: those named ``model/<name>``."""
    return {
        name.removeprefix(PERSONAL): value for name, value in store.get_state(ref).items() if name.startswith(PERSONAL)
    }


def with_personal(model: "nn.Module", store: Store, ref: ModelRef) -> None:
    """Replace weights of ``model`` by a client's own tensors, those named ``model/<name>`` in ``ref``.

    Raises:
        UserError: If one is not part of the network or has another shape.
    """
    own = personal_tensors(store, ref)
    try:
        extra = model.load_state_dict(own, strict=False).unexpected_keys
    except RuntimeError as error:
        raise UserError("a client's own tensors do not fit the network", where=ref.uri, found=error) from error
    if extra:
        raise UserError("a client's own tensors do not fit the network", where=ref.uri, found=", ".join(extra[:5]))


def split_state(model: "nn.Module", bn_policy: str) -> "tuple[dict[str, Tensor], dict[str, Tensor]]":
    """Split a model's state into what a client sends and what it keeps.

    All parameters with gradients and all buffers are exchanged; frozen tensors are not in the state at all.
    With ``bn_policy: local`` the client also keeps its own BatchNorm statistics (docs/algorithms/aggregation.md). They
    are sent along so that the server can evaluate its model.
    """
    from torch.nn.modules.batchnorm import _BatchNorm

    parameters = dict(model.named_parameters())
    frozen = {name for name, value in parameters.items() if not value.requires_grad}
    state = {name: value for name, value in model.state_dict().items() if name not in frozen}
    if bn_policy != "local":
        return state, {}
    norms = {path for path, module in model.named_modules() if isinstance(module, _BatchNorm)}
    statistics = {key: value for key, value in state.items() if key.rpartition(".")[0] in norms}
    return state, {key: value for key, value in statistics.items() if key not in parameters}


def set_training_mode(model: "nn.Module", bn_policy: str) -> None:
    """Train mode; with ``bn_policy: frozen`` BatchNorm stays in eval mode and its statistics never change."""
    from torch.nn.modules.batchnorm import _BatchNorm

    model.train()
    if bn_policy == "frozen":
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.eval()


def to_float(images: "np.ndarray", device: str) -> "Tensor":
    """uint8 [B, 3, S, S] -> float32 in 0..1 on the device."""
    import numpy as np
    import torch

    return torch.from_numpy(np.ascontiguousarray(images)).to(device).float().div_(255.0)


def predict_logits(context: "RunContext", model: "nn.Module", images: "ImageRows", batch: int = 64) -> "np.ndarray":
    """Return the logits of a model in eval mode, all label states unknown.

    Args:
        context: The run, for its device.
        model: Any network that maps images to logits.
        images: uint8 [N, 3, S, S], an array or rows of a data set.
        batch: Images per forward pass.

    Returns:
        float32 logits [N, C].
    """
    import numpy as np
    import torch

    model.eval()
    with torch.no_grad():
        parts = [
            model(to_float(images[start : start + batch], context.device)).float().cpu().numpy()
            for start in range(0, len(images), batch)
        ]
    return np.concatenate(parts) if parts else np.zeros((0, len(context.classes)), np.float32)
