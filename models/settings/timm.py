"""Settings of the networks built of timm's classes. Light: the command line imports it for ``--help``."""

from dataclasses import dataclass

from pydantic import Field, field_validator

from models.errors import UserError
from models.settings.backbone import Weights
from models.settings.section import Section


@dataclass(frozen=True)
class Variant:
    """One published size of a family.

    Attributes:
        dims: Channels; one number for networks of one width, else one for each stage.
        blocks: Blocks, likewise.
        step: Channels are rounded to multiples of it, for attention heads and vector units.
        patch: Side in pixels of a square patch; 0 if the stem is fixed.
        any_size: Whether the images' side may be any number, not only a multiple of the patch.
        heads: Attention heads of a ViT.
        published: Whether there are published weights.
    """

    dims: tuple[int, ...]
    blocks: tuple[int, ...]
    step: int = 8
    patch: int = 0
    any_size: bool = True
    heads: int = 1
    published: bool = True


def _vit(dim: int, heads: int) -> Variant:
    """Return a ViT of 12 blocks on patches of 16 pixels."""
    return Variant((dim,), (12,), step=8 * heads, patch=16, any_size=False, heads=heads)


POOLFORMER_DIMS = (64, 128, 320, 512)
# Network -> its variants under timm's names, the first is the default.
FAMILIES: dict[str, dict[str, Variant]] = {
    "resnet50": {"resnet50": Variant((64, 128, 256, 512), (3, 4, 6, 3))},
    "vit_tiny": {"vit_tiny_patch16_224": _vit(192, 3)},
    "vit_small": {"vit_small_patch16_224": _vit(384, 6)},
    "vit_base": {"vit_base_patch16_224": _vit(768, 12)},
    "mlp_mixer": {
        "mixer_s16_224": Variant((512,), (8,), patch=16, any_size=False, published=False),
        "mixer_b16_224": Variant((768,), (12,), patch=16, any_size=False),
    },
    "convmixer": {
        "convmixer_768_32": Variant((768,), (32,), patch=7),
        "convmixer_1024_20_ks9_p14": Variant((1024,), (20,), patch=14),
    },
    "poolformer": {
        "poolformer_s24": Variant(POOLFORMER_DIMS, (4, 4, 12, 4)),
        "poolformer_s12": Variant(POOLFORMER_DIMS, (2, 2, 6, 2)),
    },
}
ALL_VARIANTS = [name for variants in FAMILIES.values() for name in variants]


class TimmSettings(Section):
    """Size and initial weights of resnet50, the ViTs, mlp_mixer, convmixer and poolformer."""

    variant: str | None = Field(
        default=None,
        description="Published size, by timm's name: "
        + "; ".join(f"{family}: {', '.join(variants)}" for family, variants in FAMILIES.items())
        + ". Empty: the first of the network's.",
    )
    width: float = Field(
        default=1.0,
        ge=0.125,
        le=4.0,
        description="Factor on the variant's channels, rounded to multiples of 8 (of a ViT: 8 for each head, of which "
        "vit_tiny has 3, vit_small 6 and vit_base 12).",
    )
    depth: float = Field(
        default=1.0, gt=0.0, le=4.0, description="Factor on the variant's number of blocks, at least one in each stage."
    )
    patch: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Side in pixels of the patches of the ViTs and mlp_mixer (must divide ingest.image_size) and "
        "convmixer (pixels beyond the last whole patch are not seen). Empty: the variant's; take 8 or 4 for images "
        "under some 100 pixels. resnet50 and poolformer have none.",
    )
    weights: Weights | None = Field(
        default=None,
        description="What the backbone starts from. imagenet: timm's weights of the variant (resnet50: torchvision's), "
        "without its classifier, at width 1.0, depth 1.0 and the variant's own patch, fetched into the hub's cache. Or "
        "a local file (.safetensors, .pth, .pt): a published one; at any size a backbone of the same size, or the "
        "model of a run that has one. Empty: random weights.",
    )

    @field_validator("variant")
    @classmethod
    def _variant_exists(cls, variant: str | None) -> str | None:
        if variant is not None and variant not in ALL_VARIANTS:
            raise ValueError(f"no variant is called {variant!r}; there are {', '.join(ALL_VARIANTS)}")
        return variant

    def check(self, network: str) -> None:
        """Refuse values that do not fit ``network``, one of ``FAMILIES``; a ValueError names the key."""
        variants = FAMILIES[network]
        if self.variant is not None and self.variant not in variants:
            raise ValueError(
                f"timm.variant {self.variant} is of another network; {network} has {', '.join(variants)}; "
                "choose one of them, or leave timm.variant empty"
            )
        own = self.chosen(network)[1].patch
        if self.patch is not None and not own:
            raise ValueError(f"timm.patch is {self.patch}, but {network} has no patches; leave it empty")

    def chosen(self, network: str) -> tuple[str, Variant]:
        """Return the variant's name in timm, and its published numbers."""
        name = self.variant or next(iter(FAMILIES[network]))
        return name, FAMILIES[network][name]

    def scaled(self, network: str) -> Variant:
        """Return the variant's numbers after ``width``, ``depth`` and ``patch``: at least one step and one block."""
        _, own = self.chosen(network)
        return Variant(
            dims=tuple(max(own.step, own.step * round(dim * self.width / own.step)) for dim in own.dims),
            blocks=tuple(max(1, round(count * self.depth)) for count in own.blocks),
            step=own.step,
            patch=self.patch or own.patch,
            any_size=own.any_size,
            heads=own.heads,
            published=own.published,
        )


def check_image_size(network: str, settings: TimmSettings, size: int) -> None:
    """Refuse images that the network's patches do not cover.

    Args:
        network: One of ``FAMILIES``.
        settings: The section ``model.timm``.
        size: Side of the square images, pixels.

    Raises:
        UserError: The side is smaller than a patch or, for networks with one weight per patch, no multiple of it.
    """
    variant = settings.scaled(network)
    patch = variant.patch
    if not patch or (size >= patch and (variant.any_size or size % patch == 0)):
        return
    expected = f"at least {patch} pixels" if variant.any_size else f"a multiple of {patch} pixels"
    near = [side for side in (size // patch * patch, size // patch * patch + patch) if side]
    divisors = [side for side in range(4, size + 1) if size % side == 0 and side <= 64]
    fitting = f", or model.timm.patch to one of {', '.join(map(str, divisors))}" if divisors else ""
    raise UserError(
        f"the images' side does not fit the patches of {network}",
        where="model.timm.patch",
        expected=expected,
        found=f"{size} pixels",
        hint=f"set ingest.image_size to {' or '.join(map(str, near))}{fitting}",
    )
