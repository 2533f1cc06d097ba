"""Settings of the networks. Light: the command line imports it for ``--help``."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from models.backbone_settings import BackboneSettings, InputFormat
from models.base_settings import Section
from models.errors import UserError
from models.registry import NETWORKS
from models.timm_settings import FAMILIES, TimmSettings, check_image_size

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
        description="For source clip: a weight file, `local-dir:FOLDER`, or a hub tag of open_clip such as openai.",
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


class FmmanSettings(Section):
    """The label graph and transformer of FMMAN; docs/fmman.md explains the interpretations.

    FedLGT and C-Tran are built from the same parts: they use ``layers`` to ``z`` and fix the rest.
    """

    use_graph: bool = Field(
        default=True,
        description="Gaussian graph autoencoder over the labels (eqs 4-8). "
        "False: the transformer reads the masked label embeddings themselves.",
    )
    use_state: bool = Field(
        default=True,
        description="Label states at all. False: label embeddings are used unchanged, the graph is the same for all "
        "images, and objective fmman takes the loss over all labels in one pass (FMMAN_without_mask).",
    )
    state_combine: Literal["mul_scalar", "mul_embed", "add_embed"] = Field(
        default="mul_scalar",
        description="How a state enters a label embedding (eq 3): times -1/0/1; times a learned vector per state; "
        "plus a vector per state (C-Tran, FedLGT).",
    )
    state_embeddings: Literal["learned", "frozen"] = Field(
        default="learned",
        description="The vectors of add_embed: learned and exchanged (C-Tran), or the frozen embeddings of the words "
        "negative and positive (FedLGT). Unknown adds nothing in both.",
    )
    edge_act: Literal["abs", "clamp", "shift", "raw"] = Field(
        default="abs",
        description="From cosine to edge strength: magnitude; clamped at 0; (cos + 1) / 2; unchanged.",
    )
    adj_norm: Literal["sym", "row", "softmax", "none"] = Field(
        default="sym",
        description="Normalisation of the adjacency: by both degrees, by the row's degree, row softmax, none.",
    )
    gae_residual: bool = Field(default=False, description="Add the masked label embeddings to the encoder's output F.")
    gae_scale: float = Field(
        default=1.0,
        description="Initial value of the weight a in eq 5; larger values make the attention follow the cosines more.",
    )
    noise_scale: float = Field(
        default=1.0,
        ge=0.0,
        le=4.0,
        description="Factor on the noise of eq 7 in training; 0: F is its mean, as at evaluation.",
    )
    layers: int = Field(default=3, ge=1, le=24, description="Transformer encoder layers.")
    heads: int = Field(default=4, ge=1, description="Attention heads, in the transformer and in the graph decoder.")
    ff_ratio: float = Field(
        default=1.0, gt=0.0, le=8.0, description="Feed-forward width of a layer as a multiple of d."
    )
    dropout: float = Field(
        default=0.1, ge=0.0, lt=1.0, description="Dropout in the transformer, attention weights included."
    )
    positions: Literal["none", "sine"] = Field(
        default="none",
        description="Positions of the image tokens: none, as FMMAN and FedLGT; sine: fixed two-dimensional sines and "
        "cosines, added to the tokens, as C-Tran's code offers.",
    )
    z: Literal["image", "all", "labels", "concat"] = Field(
        default="image",
        description="Positions averaged into the embedding z of eq 11: the image's, all, the labels', "
        "or the means of image and labels side by side (twice as wide).",
    )

    @model_validator(mode="after")
    def _words_are_added(self) -> "FmmanSettings":
        if self.state_embeddings == "frozen" and self.state_combine != "add_embed":
            raise ValueError(
                f"state_embeddings frozen needs state_combine add_embed, found {self.state_combine}; set both or none"
            )
        return self


class XuesgcnSettings(Section):
    """The scenes and label graphs of XueSGCN; the defaults are the published code's."""

    scenes: int = Field(
        default=6,
        ge=1,
        le=64,
        description="Number of scenes that images are sorted into, each with its own label graph.",
    )
    attention_width: int = Field(
        default=1024, ge=1, le=8192, description="Inner width of the attention of labels over the image."
    )
    graph_width: int = Field(default=1024, ge=1, le=8192, description="Width between the two graph convolutions.")


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
    def weight_files(self) -> list[Path]:
        """Return the weight files that the network's backbone starts from: none or one."""
        path = (self.timm if self.name in FAMILIES else self.backbone).weights
        return [] if path is None else [path]

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
    def _heads_divide_the_width(self) -> "ModelSettings":
        if self.name in ("fmman", "fedlgt", "ctran") and self.backbone.dim % self.fmman.heads:
            raise ValueError(
                f"fmman.heads must divide the token width {self.backbone.dim} "
                f"(512 times backbone.width), it is {self.fmman.heads}"
            )
        return self
