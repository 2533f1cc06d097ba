"""Settings of the networks. Light: the command line imports it for ``--help``."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from models.errors import UserError
from models.registry import NETWORKS
from models.settings.backbone import RESNETS, TORCHVISION, BackboneSettings, InputFormat, Weights
from models.settings.label_aware import FmmanSettings, XuesgcnSettings
from models.settings.section import Section
from models.settings.timm import FAMILIES, TimmSettings, check_image_size

PLAIN_CLASSIFIERS = [name for name, network in NETWORKS.items() if network.is_classifier]


def _with(normalisation: str) -> str:
    """Return the networks with this normalisation, for descriptions."""
    return ", ".join(name for name, network in NETWORKS.items() if network.normalisation == normalisation)


class LabelSettings(Section):
    """The source of the frozen label embeddings."""

    source: Literal["hash", "clip", "file"] = Field(
        default="hash",
        description="hash: hashed character n-grams of the label names, no download, no meaning beyond the spelling; "
        "clip: CLIP's text encoder, as the papers do (needs clip_checkpoint); file: your own vectors.",
    )
    prompt: str = Field(
        default="The photo contains {label}.",
        description="Sentence for CLIP; {label} is replaced by the label's words. Used by source clip.",
    )
    prompt_names: dict[str, str] = Field(
        default_factory=dict,
        description="Label -> the words to embed instead of its name, if it is a code (jyz_pl: cracked insulator).",
    )
    center: bool = Field(
        default=False,
        description="Subtract the mean over the labels before the rows are normalised; "
        "this separates prompts that share a sentence.",
    )
    file: Path | None = Field(
        default=None,
        description="For source file: a .safetensors with a tensor `embeddings` [C, w] and, "
        "in its metadata, `labels`, a JSON list of C names.",
    )
    clip_model: str = Field(default="ViT-B-16", description="open_clip's name of the CLIP model. Used by source clip.")
    clip_checkpoint: str | None = Field(
        default=None,
        description="For source clip: a published tag of the model (openai), which is fetched into the hub's cache; a "
        "weight file; or `local-dir:FOLDER`.",
    )

    @field_validator("prompt")
    @classmethod
    def _prompt_has_a_slot(cls, prompt: str) -> str:
        if "{label}" not in prompt:
            raise ValueError("the prompt must contain {label}, else all labels get the same embedding")
        return prompt

    @model_validator(mode="after")
    def _file_is_named(self) -> "LabelSettings":
        if self.source == "file" and self.file is None:
            raise ValueError("labels.source is file, so labels.file must name one")
        return self


class MlpSettings(Section):
    """The hidden layers of the network mlp."""

    hidden: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = Field(
        default=(64, 30),
        min_length=1,
        description="Units of the hidden layers, times backbone.width; FedCor's are 64 and 30.",
    )


class ClassifierSettings(Section):
    """The head of the networks without label tokens."""

    projection: int = Field(
        default=0,
        ge=0,
        le=8192,
        description="Width of MOON's projection head, two linear layers between backbone and classifier "
        "(256 in its code); 0: no head.",
    )
    dropout: float | None = Field(
        default=None,
        ge=0.0,
        lt=1.0,
        description="Dropout of the hidden layers of "
        + ", ".join(
            f"{name} ({network.dropout:g})" for name, network in NETWORKS.items() if network.dropout is not None
        )
        + ". Empty: the number in brackets.",
    )


class ModelSettings(Section):
    """The network and its parts."""

    name: str = Field(default="fmman", description=f"Network: {', '.join(NETWORKS)}.")
    channels: Literal[1, 3] = Field(
        default=3, description="Input channels of the network; with 1 it takes the luminance of the images."
    )
    normalisation: Literal["default", "none", "imagenet", "half"] = Field(
        default="default",
        description="Of the network's input: none leaves 0..1; imagenet subtracts ImageNet's mean and divides by its "
        "standard deviation; half maps 0..1 to -1..1. default: "
        + f"half for {_with('half')}; none for {_with('none')}; imagenet for the others.",
    )
    backbone: BackboneSettings = Field(
        default_factory=BackboneSettings,
        description=f"The image encoder of all networks but {', '.join(FAMILIES)}.",
    )
    timm: TimmSettings = Field(default_factory=TimmSettings, description=f"Used by {', '.join(FAMILIES)}.")
    classifier: ClassifierSettings = Field(
        default_factory=ClassifierSettings,
        description=f"Used by the plain classifiers: {', '.join(PLAIN_CLASSIFIERS)}.",
    )
    mlp: MlpSettings = Field(default_factory=MlpSettings, description="Used by the network mlp.")
    labels: LabelSettings = Field(
        default_factory=LabelSettings, description="Label embeddings; used by networks with label tokens."
    )
    fmman: FmmanSettings = Field(
        default_factory=FmmanSettings,
        description="Used by the network fmman; its transformer settings by fedlgt and ctran too.",
    )
    xuesgcn: XuesgcnSettings = Field(default_factory=XuesgcnSettings, description="Used by the network xuesgcn.")

    @property
    def inputs(self) -> InputFormat:
        """Return what the network makes of the images."""
        own = self.normalisation == "default"
        return InputFormat(self.channels, NETWORKS[self.name].normalisation if own else self.normalisation)

    @property
    def resnet(self) -> BackboneSettings:
        """Return the size of a plain ResNet: ``backbone``; ResNet-50 has ``timm``'s width and the stem imagenet."""
        own = self.backbone.model_dump() | {"name": self.name}
        if self.name == "resnet50":
            own |= {"width": self.timm.width, "stem": own["stem"] if own["stem"] == "cifar" else "imagenet"}
        return BackboneSettings.model_validate(own)

    @property
    def dropout(self) -> float:
        """Return the dropout of the hidden layers of a network that has some."""
        own = NETWORKS[self.name].dropout or 0.0
        return own if self.classifier.dropout is None else self.classifier.dropout

    def check_images(self, size: int) -> None:
        """Refuse images that the network cannot take.

        Args:
            size: Side of the square images, pixels.

        Raises:
            UserError: They are smaller than its layers need, or its patches do not cover them.
        """
        if self.name in FAMILIES:
            check_image_size(self.name, self.timm, size)
        least = NETWORKS[self.name].min_side
        if size < least:
            raise UserError(
                f"the images are too small for {self.name}",
                where="ingest.image_size",
                expected=f"at least {least} pixels",
                found=f"{size} pixels",
                hint="set ingest.image_size, or choose another network in model.name",
            )

    @property
    def encoder(self) -> str:
        """Return the name of the image encoder: of a plain classifier the network's own."""
        return self.name if NETWORKS[self.name].is_classifier else self.backbone.name

    @property
    def weights_key(self) -> str:
        """Return the setting, below ``model``, that says what the backbone starts from."""
        return "timm.weights" if self.name in FAMILIES else "backbone.weights"

    @property
    def weights(self) -> Weights | None:
        """Return what the backbone starts from: a published name, a file, None for random weights."""
        return (self.timm if self.name in FAMILIES else self.backbone).weights

    @property
    def wants_state_embeddings(self) -> bool:
        """Return whether the network needs frozen embeddings of the states absent and present."""
        return self.name == "fedlgt" or (self.name == "fmman" and self.fmman.state_embeddings == "frozen")

    @field_validator("name")
    @classmethod
    def _name_is_registered(cls, name: str) -> str:
        if name not in NETWORKS:
            raise ValueError(f"no network is called {name!r}; choose one of {', '.join(NETWORKS)}")
        return name

    @model_validator(mode="after")
    def _timm_fits_the_network(self) -> "ModelSettings":
        if self.name in FAMILIES:
            self.timm.check(self.name)
        return self

    @model_validator(mode="after")
    def _parts_are_the_networks(self) -> "ModelSettings":
        network, backbone = NETWORKS[self.name], self.backbone
        if network.is_classifier and backbone.name not in ("resnet18", self.name):
            raise ValueError(
                f"backbone.name {backbone.name} is the image encoder of a network with label tokens, but model.name is "
                f"{self.name}; to train a {backbone.name} as a classifier set model.name to it, and leave backbone.name"
            )
        if backbone.norm != "default" and network.norm is None:
            raise ValueError(f"backbone.norm is {backbone.norm}, but {self.name} has no choice of it; leave default")
        if self.classifier.dropout is not None and network.dropout is None:
            raise ValueError(
                f"classifier.dropout is set, but {self.name} has no hidden layers with dropout; leave it empty"
            )
        if network.is_classifier and self.name in RESNETS:
            _ = self.resnet  # refused if its groups do not divide the channels
        return self

    @model_validator(mode="after")
    def _published_weights_fit(self) -> "ModelSettings":
        if isinstance(self.weights, str):
            wrong = [
                f"{key} {found} instead of {right[0]}"
                for key, found, right in self._published_size()
                if found not in right
            ]
            if wrong:
                raise ValueError(
                    f"{self.weights_key} {self.weights} does not fit {self.encoder} with {', '.join(wrong)}; "
                    "at another size start from a file of that size (fedscene pretrain writes one)"
                )
        return self

    def _published_size(self) -> list[tuple[str, object, tuple[object, ...]]]:
        """Return (key, value, values that published weights fit), the usual one first.

        Raises:
            ValueError: There are no published weights of the network.
        """
        name, own = self.encoder, NETWORKS[self.name]
        fits: list[tuple[str, object, tuple[object, ...]]] = [
            ("channels", self.channels, (3,)),
            ("normalisation", self.normalisation, ("default", own.normalisation)),
        ]
        if name in TORCHVISION:
            norms = ("default", "none", "batch") if name.startswith("vgg") else ("default", "batch")
            stems = ("imagenet", "small") if self.name == "resnet50" else ("imagenet",)
            fits += [("backbone.norm", self.backbone.norm, norms)]
            fits += [("backbone.stem", self.backbone.stem, stems)] if name in RESNETS else []
        if self.name in FAMILIES:
            variant, published = self.timm.chosen(name)
            if not published.published:
                raise ValueError(f"timm.weights: there are no published weights of {variant}; choose another variant")
            fits += [("timm.width", self.timm.width, (1.0,)), ("timm.depth", self.timm.depth, (1.0,))]
            return [*fits, ("timm.patch", self.timm.patch, (None, published.patch))]
        if name not in TORCHVISION:
            raise ValueError(
                f"backbone.weights: there are no published weights of {name}, only of {', '.join(TORCHVISION)} and "
                f"timm's networks; take a file (fedscene pretrain writes one), or leave it empty"
            )
        return [*fits, ("backbone.width", self.backbone.width, (1.0,))]

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "ModelSettings":
        if self.name in ("fmman", "fedlgt", "ctran") and self.backbone.dim % self.fmman.heads:
            raise ValueError(
                f"fmman.heads must divide the token width {self.backbone.dim} "
                f"(the last width of {self.backbone.name} times backbone.width), it is {self.fmman.heads}"
            )
        return self
