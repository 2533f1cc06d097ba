"""Start values that depend on a generator alone: the same model whatever ran before, in whichever thread."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.backbones import ResNetTokens, load_backbone_weights
from models.label_transformer import uniform_by_fan_in
from models.registry import build_model
from models.settings import ModelSettings


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Draw every parameter of ``model`` anew, in the order of its modules, and reset its running statistics.

    - convolutions: normal, variance 2 / fan_out (He), as torchvision's ResNets;
    - linear layers: weight and bias uniform within 1 / sqrt(fan_in) (C-Tran);
    - BatchNorm and LayerNorm: weight 1, bias 0; running mean 0, variance 1, counter 0;
    - modules with parameters of their own bring ``initialise_parameters(generator)``.

    Constants outside the state dict (label table, ImageNet's mean) stay as they are. A parameter or a buffer of the
    state dict that none of these rules covers is a programming error, and named.

    Args:
        model: A network on the CPU; drawing on a GPU would give other numbers.
        generator: A CPU generator; equal seeds give equal models.
    """
    left = set(model.state_dict())
    for prefix, module in model.named_modules():
        if _initialise_module(module, generator):
            left -= {f"{prefix}.{name}" if prefix else name for name in _own_state(module)}
    assert not left, f"no start values for {sorted(left)}"


def _own_state(module: nn.Module) -> list[str]:
    return [name for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))]


def _initialise_module(module: nn.Module, generator: torch.Generator) -> bool:
    """Set the module's own parameters and buffers; False where no rule is known for it."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        assert module.bias is None, "convolutions here have a BatchNorm behind them and no bias"
    elif isinstance(module, nn.Linear):
        uniform_by_fan_in(module.weight, module.in_features, generator)
        if module.bias is not None:
            uniform_by_fan_in(module.bias, module.in_features, generator)
    elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    else:
        own_rule = getattr(module, "initialise_parameters", None)
        if own_rule is None:
            return False
        own_rule(generator)
    return True


def new_model(
    settings: ModelSettings, classes: Sequence[str], label_table: Tensor | None, generator: torch.Generator
) -> nn.Module:
    """Build, initialise and, where ``settings.backbone.weights`` names a file, load the backbone: the round-0 model.

    Raises:
        UserError: The weight file is missing, damaged or of another network.
    """
    model = build_model(settings, classes, label_table)
    initialise(model, generator)
    if settings.backbone.weights is not None:
        backbone = model.get_submodule("backbone")
        assert isinstance(backbone, ResNetTokens), f"{settings.name} has no ResNet-18 to load weights into"
        load_backbone_weights(backbone, settings.backbone.weights)
    return model
