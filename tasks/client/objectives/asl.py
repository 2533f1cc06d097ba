"""The asymmetric loss, with XueSGCN's entropy term: each image belongs to one scene and every scene is used.

Asymmetric loss: Ridnik et al., "Asymmetric Loss For Multi-Label Classification", ICCV 2021, eqs 4-6. The gradient
goes through the focusing weights too, as the paper derives it. See docs/algorithms/xuesgcn.md.
"""

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pydantic import Field

from models.settings.section import Section
from tasks.client.objectives import LocalContext, Loss, Step
from tasks.client.objectives.forward import forward_with_embedding
from tasks.core.problem_kind import Kind

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "asymmetric loss (Ridnik et al., ICCV 2021); with XueSGCN's entropy term on networks with scenes"
KINDS: tuple[Kind, ...] = ("multi_label",)

EPS = 1e-8  # keeps the gradient of a logarithm and of a power finite at probability 0


class Settings(Section):
    """The classification loss, and the weight of the scene term for networks with scenes."""

    loss: Literal["asl", "bce"] = Field(
        "asl",
        description="asl: asymmetric loss; bce: binary cross entropy. Both are summed over labels and images: "
        "against a mean the scene term would outweigh the labels'.",
    )
    gamma_neg: float = Field(4.0, ge=0, description="Focusing exponent of absent labels. Used by loss asl.")
    gamma_pos: float = Field(1.0, ge=0, description="Focusing exponent of present labels. Used by loss asl.")
    clip: float = Field(0.05, ge=0, lt=1, description="Subtracted from absent labels' probability. Used by loss asl.")
    scene_weight: float = Field(
        1.0, ge=0, description="Weight of the entropy term on the scenes; used by networks with scenes (xuesgcn)."
    )


@runtime_checkable
class SceneNetwork(Protocol):
    """A network that sorts images into scenes (xuesgcn)."""

    def scene_forward(self, x: "Tensor", targets: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
        """Return logits [B, C], scene logits [B, K] and embedding [B, D] of a training batch."""
        ...


def asymmetric_loss(
    logits: "Tensor", targets: "Tensor", gamma_neg: float = 4.0, gamma_pos: float = 1.0, clip: float = 0.05
) -> "Tensor":
    """Return -(1 - p)^gamma_pos log p for present labels and -p_m^gamma_neg log(1 - p_m) for absent ones (eqs 4-6).

    p_m = max(p - clip, 0), so an absent label of low probability costs nothing. With both exponents and the clip 0
    it is binary cross entropy.

    Args:
        logits: [B, C].
        targets: 0/1 [B, C].
        gamma_neg: Exponent for absent labels.
        gamma_pos: Exponent for present labels.
        clip: The probability margin m.

    Returns:
        The loss of every image and label [B, C].
    """
    from torch.nn import functional as F

    p = logits.sigmoid()
    shifted = (p - clip).clamp(min=0.0)
    present = logits.neg().sigmoid().clamp(min=EPS) ** gamma_pos * -F.logsigmoid(logits)
    # Without a margin 1 - p reaches 0 in float32, its logarithm taken from the logit does not.
    surprise = -F.logsigmoid(-logits) if clip == 0.0 else -(-shifted).log1p()
    absent = shifted.clamp(min=EPS) ** gamma_neg * surprise
    return targets * present + (1.0 - targets) * absent


def scene_entropy(scenes: "Tensor") -> "Tensor":
    """Return the images' mean scene entropy plus log K minus the entropy of their mean.

    The first part is small when each image belongs to one scene, the second when the batch is spread over all.

    Args:
        scenes: Logits [B, K].

    Returns:
        A scalar in 0 .. 2 log K.
    """
    import math

    log_p = scenes.log_softmax(-1)  # [B, K]
    log_mean = log_p.logsumexp(0) - math.log(len(scenes))  # log of the batch's mean distribution [K]
    each = -(log_p.exp() * log_p).sum(-1).mean()
    return each + math.log(scenes.shape[-1]) + (log_mean.exp() * log_mean).sum()


def make(local: LocalContext) -> Step:
    """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    A network with scenes also gets the targets, which it counts. Reports ``classification``, the mean per label, and
    ``scenes``, the mean per image.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits

    s: Settings = local.settings
    network, forward = local.model, forward_with_embedding(local.model)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        scenes: Tensor | None = None
        embedding: Tensor | None
        if isinstance(network, SceneNetwork):
            logits, scenes, embedding = network.scene_forward(images, targets)
        else:
            logits, embedding = forward(images)
        logits, y = logits.float(), targets.float()
        if s.loss == "asl":
            total = asymmetric_loss(logits, y, s.gamma_neg, s.gamma_pos, s.clip).sum()
        else:
            total = binary_cross_entropy_with_logits(logits, y, reduction="sum")
        sums = {"classification": (total.detach(), float(targets.numel()))}
        if scenes is not None:
            entropy, images_here = scene_entropy(scenes.float()), float(len(targets))
            total = total + s.scene_weight * entropy
            sums["scenes"] = (entropy.detach() * images_here, images_here)
        return Loss(total, sums, embedding)

    return step
