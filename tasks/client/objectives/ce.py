"""Softmax cross entropy for images with exactly one label, for any network that maps images to logits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.client.objectives import LocalContext, Loss, Step
from tasks.client.objectives.forward import forward_with_embedding
from tasks.core.problem_kind import Kind

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "softmax cross entropy on logits, for data with one label per image; mean over images"
KINDS: tuple[Kind, ...] = ("single_label",)

Weight = Annotated[float, Field(gt=0)]  # the mean of a batch of weight 0 is not defined


class Settings(Section):
    """Label smoothing and class weights."""

    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Share of the target that is spread evenly over all classes."
    )
    class_weights: Literal["none", "inverse", "effective_number"] | list[Weight] = Field(
        "none",
        description="Weight of an image by its class. inverse: 1 / number of the client's own images of the class; "
        "effective_number: Cui et al., CVPR 2019, with beta; both have mean 1 over the client's images. Or a list, one "
        "number for each class, the same for all clients.",
    )
    beta: float = Field(0.999, ge=0, lt=1, description="Beta of class_weights effective_number.")


def check(settings: Settings, classes: Sequence[str]) -> None:
    """Refuse a list of weights that has not one for each class.

    Raises:
        UserError: If it has another length.
    """
    from tasks.client.objectives.class_weights import check_given

    check_given(settings.class_weights, len(classes), "objective.ce.class_weights")


def make(local: LocalContext) -> Step:
    """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets one-hot [B, C]) -> Loss``.

    Reports ``classification``, the mean per image.
    """
    from torch.nn.functional import cross_entropy

    s: Settings = local.settings
    forward, weights = forward_with_embedding(local.model), _weights(local)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        logits, embedding = forward(images)
        loss = cross_entropy(logits.float(), targets.argmax(dim=1), weight=weights, label_smoothing=s.label_smoothing)
        count = float(len(targets))
        return Loss(loss, {"classification": (loss.detach() * count, count)}, embedding)

    return step


def _weights(local: LocalContext) -> "Tensor | None":
    """Return the class weights [C] of a client, ``None`` without any."""
    from tasks.client.objectives.class_weights import effective_number_weights, given_weights, inverse_weights

    s: Settings = local.settings
    if s.class_weights == "none":
        return None
    counts = local.targets.long().sum(dim=0)
    if s.class_weights == "inverse":
        return inverse_weights(counts)
    if s.class_weights == "effective_number":
        return effective_number_weights(counts, s.beta)
    return given_weights(s.class_weights, len(counts), "objective.ce.class_weights").to(counts.device)
