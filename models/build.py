"""Build and initialise networks from a generator alone: the same model whatever ran before, in any thread."""

from importlib import import_module

import torch
from torch import nn

from models.classifiers.backbones import Backbone, load_backbone_weights
from models.initializers import Initializers, he_fan_out, uniform_fan_in
from models.registry import NETWORKS, ModelSpec
from models.settings import ModelSettings
from models.timm_settings import FAMILIES

DEFAULT = Initializers(conv=he_fan_out, linear=uniform_fan_in)
BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d)
NORM = (*BATCH_NORM, nn.LayerNorm, nn.GroupNorm)


def build_model(settings: ModelSettings, spec: ModelSpec) -> nn.Module:
    """Build the network ``settings.name`` on the CPU.

    Its weights come from PyTorch's global generator: call ``initialise``, or load a state, before use.

    Args:
        settings: The whole model section.
        spec: The task; ``label_embeddings`` may be None for networks that do not need them.
    """
    network = NETWORKS[settings.name]
    assert spec.label_embeddings is not None or not network.needs_labels, f"{settings.name} needs label embeddings"
    model: nn.Module = import_module(network.module).build(settings, spec)
    return model


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Initialise every parameter of ``model`` in the order of its modules, and reset its running statistics.

    - convolutions: normal, variance 2 / fan_out (He), as torchvision's ResNets; bias, where there is one, 0;
    - linear layers: weight and bias uniform within 1 / sqrt(fan_in) (C-Tran);
    - BatchNorm, LayerNorm and GroupNorm: weight 1, bias 0; running mean 0, variance 1, counter 0;
    - other modules with parameters have ``initialise_parameters(generator)``;
    - a module with an attribute ``initializers`` (``models.initializers.Initializers``) has other rules for itself and
      its submodules: timm's networks, attention's queries, keys and values, XueSGCN's graph convolutions.

    Constants outside the state dict (label embeddings, ImageNet's mean) stay unchanged. A parameter or buffer of the
    state dict without a rule is a programming error.

    Args:
        model: A network on the CPU; drawing on a GPU would give other numbers.
        generator: A CPU generator; equal seeds give equal models.
    """
    missing = set(model.state_dict()) - _initialise_within(model, "", DEFAULT, generator)
    assert not missing, f"no initialisation for {sorted(missing)}"


def _initialise_within(module: nn.Module, prefix: str, rules: Initializers, generator: torch.Generator) -> set[str]:
    """Initialise a module and its submodules by ``rules``; return the names of the initialised tensors."""
    own = getattr(module, "initializers", rules)
    assert isinstance(own, Initializers), f"initializers of {prefix or 'the model'} must be Initializers"
    done = {prefix + name for name in _initialise_module(module, own, generator)}
    for name, child in module.named_children():
        done |= _initialise_within(child, f"{prefix}{name}.", own, generator)
    return done


def _initialise_module(module: nn.Module, rules: Initializers, generator: torch.Generator) -> set[str]:
    """Initialise the module's own parameters and buffers; return the names of those that have a rule."""
    own_rule = getattr(module, "initialise_parameters", None)
    if isinstance(module, nn.Conv2d):
        rules.conv(module, generator)
    elif isinstance(module, nn.Linear):
        rules.linear(module, generator)
    elif isinstance(module, NORM):
        if module.weight is not None:
            nn.init.ones_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, BATCH_NORM):
            module.reset_running_stats()
    elif own_rule is not None:
        own_rule(generator)
    else:
        own = {name: tensor for name, tensor in module.named_parameters(recurse=False) if name in rules.tensors}
        for name, tensor in own.items():
            rules.tensors[name](tensor, generator)
        return set(own)
    return {name for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))}


def check_weights(settings: ModelSettings, image_size: int) -> None:
    """Refuse a weight file that does not fit, before any image is read.

    Args:
        settings: The model section.
        image_size: Side of the square images, pixels.

    Raises:
        UserError: As ``models.classifiers.backbones.load_backbone_weights``.
    """
    if not settings.weight_files:
        return
    plain = settings.name if settings.name in FAMILIES else "resnet18"
    model = build_model(settings.model_copy(update={"name": plain}), ModelSpec(("any",), image_size))
    _load(model, settings)


def _load(model: nn.Module, settings: ModelSettings) -> None:
    for path in settings.weight_files:
        backbone = model.get_submodule("backbone")
        assert isinstance(backbone, Backbone), f"{settings.name} has no backbone to load weights into"
        load_backbone_weights(backbone, path)


def new_model(settings: ModelSettings, spec: ModelSpec, generator: torch.Generator) -> nn.Module:
    """Build, initialise and, where the settings name a file for it, load the backbone: the round-0 model.

    Raises:
        UserError: The weight file is missing, damaged or of another network, or the network does not fit the images.
    """
    model = build_model(settings, spec)
    initialise(model, generator)
    _load(model, settings)
    return model
