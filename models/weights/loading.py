"""Initial weights from files: of a published network, or of a backbone of the same size (``models.weights.parts``)."""

import pickle
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from models.classifiers.backbones import Backbone
from models.errors import UserError

# Errors of reading a weight file that is damaged or of another program
NO_STATE_DICT = (LookupError, AttributeError, TypeError, StopIteration)
UNREADABLE = (OSError, RuntimeError, ValueError, EOFError, AssertionError, pickle.UnpicklingError, *NO_STATE_DICT)
PUBLISHED_SIZE = "width 1.0, stem imagenet (model.timm: width 1.0, depth 1.0, the variant's own patch)"


def load_backbone_weights(backbone: Backbone, path: Path) -> None:
    """Load the tensors of a file into a backbone: a published network, or a backbone of the same size.

    A published network's classifier is left out; of a model of this program, such as a finished round's, only the
    tensors under ``backbone.`` are loaded.

    Raises:
        UserError: The file is missing, damaged, of another network or size (the message names the first tensors that
            don't fit, with both shapes), or a tensor in it is not a plain one of finite real numbers.
    """
    target = backbone.published
    tensors = _read_tensors(path, backbone.published_name)
    within = next(name for name, module in backbone.named_modules() if module is target)
    whole = f"backbone.{within}." if within else "backbone."
    if any(name.startswith(whole) for name in tensors):
        state = {name.removeprefix(whole): tensor for name, tensor in tensors.items() if name.startswith(whole)}
    else:
        state = {name: tensor for name, tensor in tensors.items() if not name.startswith(backbone.classifier)}
    state, own = backbone.adapt(state), target.state_dict()
    # Files of early PyTorch versions lack the batch counters; training restarts them anyway.
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    unknown = [name for name in state if name not in own]
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    if missing or unknown or shapes:
        parts = [("missing", missing), (f"not in a {backbone.published_name}", unknown), ("other shape", shapes)]
        raise UserError(
            "these weights do not fit the backbone",
            where=path,
            expected=f"the tensors of a {backbone.published_name} with {backbone.size_text}",
            found="; ".join(f"{kind}: {_first(names)} ({len(names)})" for kind, names in parts if names),
            hint=f"published files fit {PUBLISHED_SIZE}; another size can start from a file of that very size, such as "
            "the model of a finished run (rounds/NNNN/model.safetensors), or without weights",
        )
    _check_values(state, path)
    target.load_state_dict(state, strict=False)


def _first(names: Sequence[str]) -> str:
    """Return the first three names, each shortened: a foreign file's names may be any text."""
    return ", ".join(name if len(name) <= 120 else f"{name[:117]}..." for name in names[:3])


def _check_values(state: dict[str, Tensor], path: Path) -> None:
    for name, tensor in state.items():
        found = None
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            found = f"{name} is sparse, quantised or without values"
        elif tensor.is_complex() or tensor.dtype == torch.bool:
            found = f"{name} is {tensor.dtype}"
        elif not torch.isfinite(tensor.float()).all():  # .float(): isfinite knows not every 8-bit float
            found = f"{name} holds NaN or infinity"
        if found:
            expected = "tensors of finite real numbers"
            raise UserError("the backbone's weights cannot be used", where=path, expected=expected, found=found)


def unread(error: Exception) -> str:
    """Return in one line why a weight file could not be read.

    PyTorch suggests ``weights_only=False``, which would execute code from the file; the suggestion is not passed on.
    """
    line = f"{type(error).__name__}: {error}".split("\n")[0]
    if isinstance(error, NO_STATE_DICT):
        return f"it is damaged or no state dict ({line})"
    if "weights_only" not in str(error):
        return line
    objects = "TorchScript" in line or re.search(r"\bGLOBAL\b", str(error))
    return "it holds Python objects, which are not executed" if objects else "it is damaged, or holds no tensors"


def _read_tensors(path: Path, published_name: str) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors or a PyTorch file; nothing in the file is executed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    expected = f"a .safetensors, .pth or .pt file with the tensors of a {published_name}"
    if not path.is_file():
        raise UserError(
            "the backbone's weight file does not exist", where=path, expected=expected, found="no such file"
        )
    try:
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (*UNREADABLE, SafetensorError) as error:
        raise UserError(
            "the backbone's weights cannot be read", where=path, expected=expected, found=unread(error)
        ) from error
    named = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    if not named or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError("the backbone's weights are not a state dict", where=path, expected="name -> tensor")
    return state
