"""Settings of the partition. Only the block of the chosen ``scheme`` is used."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, field_serializer, model_validator

from models.settings.section import Section
from tasks.data.partition.labelled_settings import LabelledSettings

Scheme = Literal[
    "natural",
    "iid",
    "dirichlet",
    "dirichlet_label",
    "dirichlet_client",
    "shards",
    "classes_per_client",
    "quantity",
    "label_type",
    "mixed",
    "cluster",
    "semantic",
    "iterative",
]


class NaturalSettings(Section):
    """Scheme natural: one client per site."""

    small: Literal["refuse", "drop"] = Field(
        "refuse", description="Sites below min_size: an error, or left out with all their images and reported."
    )


class IidSettings(Section):
    """Scheme iid: at random."""

    stratified: bool = Field(False, description="Allocate each primary label evenly: for small data sets.")
    sizes: list[Annotated[float, Field(gt=0)]] | None = Field(
        None, description="Relative sizes of the clients, such as [8, 1, 1]; null: equal."
    )


class LabelSetSettings(Section):
    """Which label sets are strata; schemes dirichlet, and iterative with local.scheme matched or a repair."""

    merge: Literal["rarest", "hamming", "jaccard"] = Field(
        "rarest", description="A rare set joins its rarest label, or the frequent set nearest by this distance."
    )
    smallest: int | None = Field(
        None, ge=1, description="A set with fewer images is rare; null: the number of clients."
    )
    cap: int | None = Field(
        None, ge=1, description="Largest number of sets that are kept, the most frequent ones; null: no limit."
    )


class DirichletLabelSettings(Section):
    """Scheme dirichlet_label: each primary label is divided by its own shares."""

    balance: bool = Field(
        False, description="A client that has reached its equal share of all images receives no further label."
    )


class DirichletClientSettings(Section):
    """Schemes dirichlet_client and mixed: each client samples its own mixture of primary labels."""

    concentration: Literal["total", "per_label"] = Field(
        "total",
        description="total: Dirichlet(alpha * shares of the labels in the data), as Hsu et al.; per_label: that times "
        "the number of labels, which is Dirichlet(alpha) per label if labels are equally frequent.",
    )


class ShardSettings(Section):
    """Scheme shards: images sorted by primary label and cut into equal shards."""

    per_client: int = Field(2, ge=1, description="Shards per client.")


class ClassesSettings(Section):
    """Scheme classes_per_client: each client holds a few primary labels only."""

    classes: int = Field(2, ge=1, description="Primary labels per client.")
    choice: Literal["random", "blocks", "listed"] = Field(
        "random",
        description="random: client k gets label k mod C, the others at random (NIID-Bench); blocks: the next few "
        "clients that lack labels share the next label (PFLlib); listed: as in listed.",
    )
    listed: list[list[Annotated[int, Field(ge=0)]]] | None = Field(
        None,
        description="For choice listed: the labels of each client, as numbers from 0 in label order; to repeat a "
        "published draw.",
    )
    sizes: Literal["even", "uneven"] = Field(
        "even",
        description="How a label's images are divided among its clients. uneven: each but the last gets between a "
        "tenth and the whole of an even share, the last one the rest (PFLlib).",
    )

    @model_validator(mode="after")
    def _listed_has_a_list(self) -> Self:
        if (self.choice == "listed") != (self.listed is not None):
            raise ValueError("listed and choice: listed belong together: set both or neither")
        for client, labels in enumerate(self.listed or []):
            if len(set(labels)) < len(labels) or not 1 <= len(labels) <= self.classes:
                most = f"1 to {self.classes} different labels (classes)"
                raise ValueError(f"listed: client {client} must have {most}, found {labels}")
        return self


class QuantitySettings(Section):
    """How sizes differ; schemes quantity and mixed."""

    kind: Literal["dirichlet", "lognormal"] = Field("dirichlet", description="Distribution of the sizes.")
    alpha: float = Field(0.5, ge=1e-6, description="Concentration for dirichlet: small = uneven.")
    sigma: float = Field(1.0, ge=0, le=20, description="Standard deviation of the logarithm for lognormal.")


class LabelTypeSettings(Section):
    """Scheme label_type: client k samples its primary labels from mixture k mod types."""

    types: int = Field(10, ge=1, description="Number of mixtures.")
    mixture: Literal["dirichlet", "dominant"] = Field(
        "dirichlet",
        description="dirichlet: sampled with alpha; dominant: one label 0.5, its neighbours 0.15 each, the others "
        "the rest.",
    )


class ClusterSettings(Section):
    """Scheme cluster: k-means over label vectors; clusters are divided as label sets are."""

    clusters: int = Field(10, ge=1, description="Number of clusters; at most the number of label sets.")
    weighting: Literal["binary", "tfidf"] = Field("binary", description="Labels as 0 and 1, or rare ones heavier.")


class SemanticSettings(Section):
    """Scheme semantic: k-means over principal components of the images; clusters are divided as label sets are."""

    clusters: int = Field(10, ge=1, description="Number of clusters.")
    components: int = Field(16, ge=1, le=192, description="Principal components of the images reduced to 8 x 8 pixels.")


class LocalSettings(Section):
    """Local test sets of the clients."""

    scheme: Literal["global", "local", "matched"] = Field(
        "global",
        description="global: none, all share the data set's test images; local: a part of each client's images; "
        "matched: the data set's val and test images, in the proportions of each client's training images.",
    )
    val: float = Field(0.0, ge=0, lt=1, description="Share for validation, scheme local.")
    test: float = Field(0.25, gt=0, lt=1, description="Share for testing, scheme local; at least one image.")

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        if self.val + self.test >= 1:
            raise ValueError(f"val + test must be below 1, it is {self.val + self.test:g}")
        return self


class FeatureSettings(Section):
    """Feature skew: how each client's images are changed; labels stay the same."""

    kind: Literal["none", "noise", "transform"] = Field(
        "none",
        description="noise: normal noise with standard deviation strength * i/N at client i of N (white is 1); "
        "transform: brightness, contrast, saturation, hue, blur and rotation that differ from client to client.",
    )
    strength: float = Field(0.1, gt=0, le=2, description="1 is strong.")
    clean_first: bool = Field(
        False,
        description="noise: standard deviation strength * (i-1)/(N-1), so that the first client's images stay clean, "
        "as in NIID-Bench's code.",
    )
    channels: Literal["each", "same"] = Field(
        "each", description="noise: drawn for each colour channel, or the same in all, for grey images."
    )
    test: Literal["clean", "clients"] = Field(
        "clean",
        description="Pooled test and validation images. clean: unchanged; clients: one copy per client, with its "
        "feature skew (NIID-Bench).",
    )

    @model_validator(mode="after")
    def _options_have_a_skew(self) -> Self:
        if self.kind != "noise":
            self.refuse_changed(("clean_first", "channels"), f"it is for kind noise, and kind is {self.kind}")
        if self.kind == "none":
            self.refuse_changed(("test",), "kind is none")
        return self


class PartitionSettings(Section):
    """How training images are divided among clients."""

    scheme: Scheme = Field(
        "natural",
        description="natural: one client per site; iid: at random; dirichlet: skewed by label sets; dirichlet_label, "
        "dirichlet_client, shards, classes_per_client, label_type, mixed: skewed by primary label; quantity: by size; "
        "cluster, semantic: by clusters of labels or images; iterative: each label skewed separately.",
    )
    images: Literal["train", "all"] = Field(
        "train",
        description="Which images are divided. train: those of the data set's train split; all: every image, whatever "
        "its split (PFLlib); then each client tests on a part of its own (local.scheme local), and the pooled test set "
        "is the union of these parts.",
    )
    share: float = Field(1.0, gt=0, le=1, description="Share of these images, of each primary label, that is divided.")
    clients: int | None = Field(None, ge=1, description="Number of clients; for natural the number of sites.")
    alpha: float = Field(
        0.5,
        ge=1e-6,
        allow_inf_nan=True,
        description="Dirichlet concentration: small = skewed, large = alike, .inf = equal; schemes dirichlet*, mixed, "
        "label_type, cluster, semantic, iterative.",
    )
    min_size: int = Field(
        16, ge=1, description="Fewest training images of a client, before local.scheme takes its test images."
    )
    resamples: int = Field(
        1000,
        ge=0,
        description="Samples rejected for min_size, at most; after that, images of large clients are reassigned to "
        "small ones.",
    )
    primary: Literal["rarest", "first"] = Field(
        "rarest",
        description="The primary label of an image: its rarest label, or its first in label order.",
    )
    natural: NaturalSettings = Field(default_factory=NaturalSettings)
    iid: IidSettings = Field(default_factory=IidSettings)
    label_sets: LabelSetSettings = Field(default_factory=LabelSetSettings)
    dirichlet_label: DirichletLabelSettings = Field(default_factory=DirichletLabelSettings)
    dirichlet_client: DirichletClientSettings = Field(default_factory=DirichletClientSettings)
    shards: ShardSettings = Field(default_factory=ShardSettings)
    classes_per_client: ClassesSettings = Field(default_factory=ClassesSettings)
    quantity: QuantitySettings = Field(default_factory=QuantitySettings)
    label_type: LabelTypeSettings = Field(default_factory=LabelTypeSettings)
    cluster: ClusterSettings = Field(default_factory=ClusterSettings)
    semantic: SemanticSettings = Field(default_factory=SemanticSettings)
    local: LocalSettings = Field(default_factory=LocalSettings)
    labelled: LabelledSettings = Field(default_factory=LabelledSettings)
    features: FeatureSettings = Field(default_factory=FeatureSettings)

    @model_validator(mode="after")
    def _blocks_fit_the_scheme(self) -> Self:
        if self.scheme == "natural" and self.clients is not None:
            raise ValueError("clients must be null for the scheme natural, which makes one client per site")
        if self.scheme != "natural" and self.clients is None:
            raise ValueError(f"clients: the scheme {self.scheme} needs a number of clients")
        if self.scheme == "natural" and self.labelled.balanced:
            raise ValueError("labelled.balanced does not fit the scheme natural, which leaves every image at its site")
        listed = self.classes_per_client.listed
        if self.scheme == "classes_per_client" and listed is not None and len(listed) != self.clients:
            raise ValueError(
                f"classes_per_client.listed must list the labels of {self.clients} clients (clients), found "
                f"{len(listed)}"
            )
        sizes = self.iid.sizes
        if self.scheme == "iid" and sizes is not None and len(sizes) != self.clients:
            raise ValueError(f"iid.sizes must list the sizes of {self.clients} clients (clients), found {len(sizes)}")
        if self.images == "all" and self.local.scheme != "local":
            raise ValueError(
                f"images: all leaves no common test images, so local.scheme must be local, it is {self.local.scheme}"
            )
        return self

    @field_serializer("alpha", when_used="json")
    def _alpha_in_json(self, alpha: float) -> float | str:
        """Write infinity, which JSON lacks, as the text "inf"; it is read back as infinity."""
        return "inf" if math.isinf(alpha) else alpha
