"""Settings of the networks. Light: the command line imports it for ``--help``."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from models.base_settings import Section
from models.registry import NETWORKS
from models.timm_settings import FAMILIES, TimmSettings


class BackboneSettings(Section):
    """The image encoder, a ResNet-18 of a chosen width."""

    name: Literal["resnet18"] = Field(default="resnet18", description="Image encoder.")
    width: float = Field(
        default=1.0,
        ge=0.125,
        le=4.0,
        description="Factor on ResNet-18's 64, 128, 256, 512 channels (rounded to multiples of 8). "
        "1.0 is the papers'; 0.25 trains about ten times faster on a CPU.",
    )
    stem: Literal["imagenet", "small"] = Field(
        default="imagenet",
        description="imagenet: 7x7 with pooling, the papers'; small: 3x3 without pooling, which keeps the small parts "
        "of images under some 100 pixels (four times the work).",
    )
    weights: Path | None = Field(
        default=None,
        description="Local file (.safetensors, .pth, .pt) to start from: a torchvision or timm ResNet-18 at width 1.0 "
        "with stem imagenet; at any width a backbone of the same width and stem, or the model of a run that has one "
        "(its rounds/NNNN/model.safetensors). Empty: random weights.",
    )

    @property
    def channels(self) -> tuple[int, int, int, int]:
        """Return the channels of the stem and the four stages, multiples of 8 and at least 8."""
        first, second, third, fourth = (max(8, 8 * round(base * self.width / 8)) for base in (64, 128, 256, 512))
        return first, second, third, fourth

    @property
    def dim(self) -> int:
        """Return the channels D of the last map: the token width d of networks that put tokens on top."""
        return self.channels[-1]


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


class ClassifierSettings(Section):
    """The head of the plain classifiers: resnet18, resnet50, vit_tiny, mlp_mixer, convmixer, poolformer."""

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
    backbone: BackboneSettings = Field(
        default_factory=BackboneSettings,
        description=f"The image encoder of all networks but {', '.join(FAMILIES)}.",
    )
    timm: TimmSettings = Field(default_factory=TimmSettings, description=f"Used by {', '.join(FAMILIES)}.")
    classifier: ClassifierSettings = Field(
        default_factory=ClassifierSettings,
        description=f"Used by the plain classifiers: resnet18, {', '.join(FAMILIES)}.",
    )
    labels: LabelSettings = Field(
        default_factory=LabelSettings, description="Label embeddings; used by networks with label tokens."
    )
    fmman: FmmanSettings = Field(
        default_factory=FmmanSettings,
        description="Used by the network fmman; its transformer settings by fedlgt and ctran too.",
    )
    xuesgcn: XuesgcnSettings = Field(default_factory=XuesgcnSettings, description="Used by the network xuesgcn.")

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
