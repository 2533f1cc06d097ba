"""Plain classifiers on timm's ViT, MLP-Mixer, ConvMixer and PoolFormer. Letters: B batch, D width.

timm's constructors of the published variants accept no other width or depth, so its classes are called here with the
variants' numbers. Initial weights are timm's.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from models.classifiers.backbones import Backbone
from models.classifiers.classifier import Classifier
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from models.settings.timm import Variant, check_image_size

LAYER_SCALE = 1e-5  # initial layer scale of PoolFormer-S12 and -S24


def vit(name: str, size: Variant, image_size: int, channels: int) -> nn.Module:
    """Vision transformer with a class token (Dosovitskiy et al., ICLR 2021)."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=image_size,
        patch_size=size.patch,
        in_chans=channels,
        embed_dim=size.dims[0],
        depth=size.blocks[0],
        num_heads=size.heads,
        num_classes=0,
    )


def mlp_mixer(name: str, size: Variant, image_size: int, channels: int) -> nn.Module:
    """MLP-Mixer (Tolstikhin et al., NeurIPS 2021): its token mixing has one weight per pair of patches."""
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(
        img_size=image_size,
        patch_size=size.patch,
        in_chans=channels,
        embed_dim=size.dims[0],
        num_blocks=size.blocks[0],
        num_classes=0,
    )


def convmixer(name: str, size: Variant, image_size: int, channels: int) -> nn.Module:
    """ConvMixer (Trockman and Kolter, TMLR 2023)."""
    from timm.models.convmixer import ConvMixer

    kernel, activation = {"convmixer_768_32": (7, nn.ReLU), "convmixer_1024_20_ks9_p14": (9, nn.GELU)}[name]
    return ConvMixer(
        dim=size.dims[0],
        depth=size.blocks[0],
        kernel_size=kernel,
        patch_size=size.patch,
        in_chans=channels,
        num_classes=0,
        act_layer=activation,
    )


def poolformer(name: str, size: Variant, image_size: int, channels: int) -> nn.Module:
    """PoolFormer (Yu et al., CVPR 2022): tokens are mixed by 3 x 3 average pooling minus identity."""
    from timm.layers import GroupNorm1
    from timm.models.metaformer import MetaFormer

    return MetaFormer(
        in_chans=channels,
        depths=size.blocks,
        dims=size.dims,
        num_classes=0,
        downsample_norm=None,
        norm_layers=GroupNorm1,
        mlp_act=nn.GELU,
        mlp_bias=True,
        layer_scale_init_values=LAYER_SCALE,
        res_scale_init_values=(None,) * len(size.dims),
        use_mlp_head=False,
    )


BUILDERS: dict[str, Callable[[str, Variant, int, int], nn.Module]] = {
    "vit_tiny": vit,
    "vit_small": vit,
    "vit_base": vit,
    "mlp_mixer": mlp_mixer,
    "convmixer": convmixer,
    "poolformer": poolformer,
}


class TimmBackbone(Backbone):
    """One of timm's networks up to its pooled vector, under timm's parameter names.

    Args:
        settings: The model section; ``name`` is the family.
        image_size: Side of the square images, pixels. ViT and Mixer have one position or token-mixing weight per
            patch and accept no other size.

    Raises:
        UserError: The patches do not cover the images.
    """

    classifier = "head."

    def __init__(self, settings: ModelSettings, image_size: int) -> None:
        family, options = settings.name, settings.timm
        super().__init__(settings.inputs)
        check_image_size(family, options, image_size)
        self.family, size = family, options.scaled(family)
        self.published_name, _ = options.chosen(family)
        self.size_text = f"width {options.width:g}, depth {options.depth:g}, patches of {size.patch or 'no'} pixels"
        self.width = size.dims[-1]
        if family == "poolformer":
            self.classifier = "head.fc."  # its head contains the last norm too
        self.net = BUILDERS[family](self.published_name, size, image_size, settings.channels)
        assert not uses_global_generator(self.net), "dropout here would draw from PyTorch's global generator"

    def pooled(self, x: Tensor) -> Tensor:
        """Map images [B, 3, S, S], float in [0, 1], to vectors [B, D]: ViT's class token, else the mean."""
        vectors: Tensor = self.net(self.normalise(x))
        return vectors

    @property
    def published(self) -> nn.Module:
        """Return timm's module."""
        return self.net

    def adapt(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a published state; ViT's positions of another image size are resampled (bicubic, as in timm).

        Positions that cannot be resampled stay unchanged, and are refused later for their shape or values.
        """
        from timm.layers import resample_abs_pos_embed

        found, own = state.get("pos_embed"), getattr(self.net, "pos_embed", None)
        if found is None or own is None or found.shape == own.shape or not can_resample(found, own):
            return state
        side = round((own.shape[1] - 1) ** 0.5)
        return {**state, "pos_embed": resample_abs_pos_embed(found, new_size=[side, side], num_prefix_tokens=1)}


def can_resample(found: Tensor, own: Tensor) -> bool:
    """Return whether positions ``found`` [1, 1 + n, D] are a square grid of ordinary numbers behind a class token."""
    plain = found.layout == torch.strided and found.is_floating_point() and not found.is_meta
    if not plain or found.dim() != 3 or found.shape[0] != 1 or found.shape[2] != own.shape[2] or found.shape[1] < 2:
        return False
    return round((found.shape[1] - 1) ** 0.5) ** 2 == found.shape[1] - 1


def uses_global_generator(net: nn.Module) -> bool:
    """Return whether a module of ``net`` would use PyTorch's global generator in training."""
    from timm.layers import DropPath, PatchDropout

    def rate(module: Any) -> float:
        if isinstance(module, DropPath):
            return float(module.drop_prob or 0.0)
        return float(module.p) if isinstance(module, nn.modules.dropout._DropoutNd) else 0.0

    return any(rate(module) > 0.0 or isinstance(module, PatchDropout) for module in net.modules())


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return the network ``settings.name`` for the spec's classes and image size.

    Raises:
        UserError: The patches do not cover the images.
    """
    backbone = TimmBackbone(settings, spec.image_size)
    return Classifier(backbone, len(spec.classes), settings.classifier.projection)
