"""Settings of the networks with label tokens. Light: the command line imports it for ``--help``."""

from typing import Literal

from pydantic import Field, model_validator

from models.settings.section import Section


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
