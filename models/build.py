"""Build networks with their own initialisation from a seed: the same model whatever ran before, in any thread."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from models.classifiers.backbones import Backbone
from models.classifiers.resnet import ResNetTokens
from models.registry import NETWORKS, ModelSpec
from models.settings.model import ModelSettings
from models.weights.loading import load_backbone_weights
from models.weights.parts import backbone_of
from models.weights.published import imagenet_file

# PyTorch's layers draw their initial weights from the global generator, which all threads share.
_global_generator = threading.RLock()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's global CPU generator for the block, one thread at a time, and restore its state afterwards."""
    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)  # torch.manual_seed would seed the GPUs' generators too
        yield


class _WithoutWeights(TorchFunctionMode):
    """Makes layers without weights, in this thread: ``torch.empty`` allocates nothing, ``torch.nn.init`` draws nothing.

    Buffers have their values: layers make those by other functions.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty:
            return func(*args, **(kwargs | {"device": "meta"}))
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def build_model(settings: ModelSettings, spec: ModelSpec, seed: int = 0) -> nn.Module:
    """Build the network ``settings.name`` on the CPU, initialised as its constructor does it.

    Args:
        settings: The whole model section.
        spec: The task; ``label_embeddings`` may be None for networks that do not need them.
        seed: Of the initial weights; of no consequence where a state is loaded.
    """
    network = NETWORKS[settings.name]
    assert spec.label_embeddings is not None or not network.needs_labels, f"{settings.name} needs label embeddings"
    build = import_module(network.module).build
    with seeded(seed):
        model: nn.Module = build(settings, spec)
    return model


def load_model(settings: ModelSettings, spec: ModelSpec, state: dict[str, Tensor]) -> nn.Module:
    """Build the network around a whole state, without drawing initial weights.

    Args:
        settings: The whole model section.
        spec: The task.
        state: Every tensor of the network's ``state_dict``.

    Raises:
        RuntimeError: If a tensor is missing, unknown or of another shape.
    """
    with _WithoutWeights():
        model = build_model(settings, spec)
    # Copies, because a file's tensors begin at any address, and kernels may round otherwise by alignment.
    model.load_state_dict({name: value.clone() for name, value in state.items()}, strict=True, assign=True)
    left = [name for name, value in (*model.named_parameters(), *model.named_buffers()) if value.is_meta]
    assert not left, f"not in the state: {left}"
    return model


def weight_files(settings: ModelSettings) -> list[Path]:
    """Return the weight files that the network's backbone starts from, none or one; a published one is fetched.

    Raises:
        UserError: As ``models.weights.published.imagenet_file``.
    """
    if settings.weights is None:
        return []
    return [settings.weights if isinstance(settings.weights, Path) else imagenet_file(settings)]


def check_weights(settings: ModelSettings, image_size: int) -> None:
    """Refuse a weight file that does not fit, before any image is read.

    Args:
        settings: The model section.
        image_size: Side of the square images, pixels.

    Raises:
        UserError: As ``models.weights.loading.load_backbone_weights``.
    """
    if settings.weights is None:
        return
    if NETWORKS[settings.name].is_classifier:
        backbone = backbone_of(build_model(settings, ModelSpec(("any",), image_size)))
    else:
        with seeded(0):  # without the rest, as the label embeddings are not known yet
            backbone = ResNetTokens(settings.backbone, settings.inputs)
    _load(backbone, settings)


def _load(backbone: Backbone, settings: ModelSettings) -> None:
    for path in weight_files(settings):
        load_backbone_weights(backbone, path)


def new_model(settings: ModelSettings, spec: ModelSpec, seed: int) -> nn.Module:
    """Return the round-0 model: built from a seed, with a loaded backbone if the settings name a file for it.

    Raises:
        UserError: If the weight file is missing, damaged or of another network, or the network does not fit the images.
    """
    model = build_model(settings, spec, seed)
    _load(backbone_of(model), settings)
    return model
