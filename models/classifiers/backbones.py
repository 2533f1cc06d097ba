"""Image encoders. Letters: B batch, H and W image height and width, D channels of the last map, h and w its size."""

import pickle
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import UserError
from models.settings import BackboneSettings

# Mean and deviation of ImageNet's training images, per channel, for inputs in [0, 1].
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# What reading somebody's weight file raises: its readers take for granted what a damaged or foreign one lacks
NO_STATE_DICT = (LookupError, AttributeError, TypeError, StopIteration)
UNREADABLE = (OSError, RuntimeError, ValueError, EOFError, AssertionError, pickle.UnpicklingError, *NO_STATE_DICT)
PUBLISHED_SIZE = "width 1.0, stem imagenet (model.timm: width 1.0, depth 1.0, the variant's own patch)"
RESNET18 = (2, 2, 2, 2)  # basic blocks of each stage
Triple = tuple[float, float, float]


class Backbone(nn.Module):
    """From images to one vector, what a plain classifier is built on. Images are normalised here and nowhere else.

    Args:
        mean: Subtracted from each colour channel of inputs in [0, 1].
        std: Then divided by.

    Attributes:
        width: D, length of the vector.
        title: The published network whose weight files fit, where the size is its own.
        made: The size that the network was made in, for messages.
        classifier: Prefix of the tensors in such a file that are not the backbone's.
    """

    mean: Tensor
    std: Tensor
    width: int
    title: str
    made: str
    classifier: str

    def __init__(self, mean: Triple = IMAGENET_MEAN, std: Triple = IMAGENET_STD) -> None:
        super().__init__()
        # Constants, not state: outside the state dict, so they are neither sent nor averaged.
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def normalise(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W], float in [0, 1], to mean 0 and deviation 1 of the images the network was made for."""
        return (x - self.mean) / self.std

    def pooled(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W], float in [0, 1], to vectors [B, D]."""
        raise NotImplementedError

    @property
    def published(self) -> nn.Module:
        """The module whose tensors carry the names of the published weight files."""
        return self

    def adapt(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """A published state, fitted to this network's image size where the network knows how."""
        return state


class ResNetTokens(Backbone):
    """ResNet-18 from its stem to its last stage, without pooling and classifier (spec 1.2); also ResNet-50.

    Made of timm's blocks under torchvision's parameter names. timm's own ResNet keeps 64 stem channels
    at every width, so the stem is made here.

    Args:
        settings: Width and stem of the network.
        blocks: Blocks of each stage.
        bottleneck: ResNet-50's blocks, which end in four times the channels, instead of ResNet-18's.
    """

    classifier = "fc."

    def __init__(
        self, settings: BackboneSettings, blocks: tuple[int, ...] = RESNET18, bottleneck: bool = False
    ) -> None:
        from timm.models.resnet import BasicBlock, Bottleneck, make_blocks

        super().__init__()
        block: type[BasicBlock] | type[Bottleneck] = Bottleneck if bottleneck else BasicBlock
        channels = settings.channels
        self.width = channels[-1] * block.expansion
        self.title = "ResNet-50" if bottleneck else "ResNet-18"
        self.made = f"width {settings.width:g}, stem {settings.stem}, {'-'.join(map(str, blocks))} blocks"
        self.small = settings.stem == "small"
        kernel = 3 if self.small else 7
        self.conv1 = nn.Conv2d(3, channels[0], kernel_size=kernel, stride=2, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        stages, _ = make_blocks((block,) * 4, channels, blocks, inplanes=channels[0])
        self.stages = [name for name, _ in stages]
        for name, stage in stages:
            self.add_module(name, stage)

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W], float in [0, 1], to the last map [B, D, h, w].

        h = ceil(H / 32), w = ceil(W / 32); with the small stem 16 instead of 32.
        """
        x = F.relu(self.bn1(self.conv1(self.normalise(x))))  # [B, first channels, H/2, W/2]
        if not self.small:
            x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)  # [B, first channels, H/4, W/4]
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return x

    def pooled(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W], float in [0, 1], to the mean [B, D] over the last map's positions."""
        mean: Tensor = self(x).mean((2, 3))
        return mean


def load_backbone_weights(backbone: Backbone, path: Path) -> None:
    """Load the tensors of a file into a backbone: a published network, or a backbone of the same size.

    A published network's classifier is left out; of a whole model of this program, such as a finished round's, the
    tensors under ``backbone.`` are taken.

    Raises:
        UserError: The file is missing, damaged, of another network or size (the message names the first tensors that
            don't fit, with both shapes), or a tensor in it is not a plain one of finite real numbers.
    """
    target = backbone.published
    tensors = _read_tensors(path, backbone.title)
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
        parts = [("missing", missing), (f"not in a {backbone.title}", unknown), ("other shape", shapes)]
        raise UserError(
            "These weights do not fit the backbone.",
            where=path,
            expected=f"the tensors of a {backbone.title} made with {backbone.made}",
            found="; ".join(f"{kind}: {_first(names)} ({len(names)})" for kind, names in parts if names),
            hint=f"published files fit {PUBLISHED_SIZE}; another size can start from a file of that very size, such as "
            "the model of a finished run (rounds/NNNN/model.safetensors), or without weights",
        )
    _check_values(state, path)
    target.load_state_dict(state, strict=False)


def _first(names: Sequence[str]) -> str:
    """The first three, each cut to a length that a message can hold: a foreign file's names are any text."""
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
            raise UserError("The backbone's weights cannot be used.", where=path, expected=expected, found=found)


def unread(error: Exception) -> str:
    """What a weight file that was not read has wrong with it, in a line.

    PyTorch advises to load what it refuses with ``weights_only=False``, which would execute it; that is not passed on.
    """
    line = f"{type(error).__name__}: {error}".split("\n")[0]
    if isinstance(error, NO_STATE_DICT):
        return f"it is damaged or no state dict ({line})"
    if "weights_only" not in str(error):
        return line
    objects = "TorchScript" in line or re.search(r"\bGLOBAL\b", str(error))
    return "it holds Python objects, which are not executed" if objects else "it is damaged, or holds no tensors"


def _read_tensors(path: Path, title: str) -> dict[str, Tensor]:
    """The tensors of a .safetensors or a PyTorch file; nothing in the file is executed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    expected = f"a .safetensors, .pth or .pt file with the tensors of a {title}"
    if not path.is_file():
        raise UserError("The backbone's weights are not there.", where=path, expected=expected, found="no such file")
    try:
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (*UNREADABLE, SafetensorError) as error:
        raise UserError(
            "The backbone's weights cannot be read.", where=path, expected=expected, found=unread(error)
        ) from error
    named = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    if not named or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError("The backbone's weights are not a state dict.", where=path, expected="name -> tensor")
    return state
