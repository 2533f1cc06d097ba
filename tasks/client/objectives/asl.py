"""The asymmetric loss, and what XueSGCN adds to it so that every scene is used and each image belongs to one.

Asymmetric loss: Ridnik et al., "Asymmetric Loss For Multi-Label Classification", ICCV 2021, eqs 1-6. The gradient
goes through the focusing weights too, as the paper derives it.
"""

from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field

from models.base_settings import Section
from tasks.client.objectives import Loss, Scene, Step
from tasks.client.objectives.forward import forward_of

if TYPE_CHECKING:
    from torch import Tensor

TITLE = "asymmetric loss (Ridnik et al., ICCV 2021); XueSGCN's, with an entropy term on its scenes"

TINY = 1e-8  # a probability that is 0 has a logarithm and a power with a gradient


class Settings(Section):
    """The classification loss, and the weight of the scenes' part for networks that have scenes."""

    loss: Literal["asl", "bce"] = Field(
        "asl",
        description="asl: asymmetric loss; bce: binary cross entropy. Both summed over labels and images: "
        "beside a mean the scenes' part would outweigh the labels'.",
    )
    gamma_neg: float = Field(4.0, ge=0, description="Focusing exponent of absent labels. Used by loss asl.")
    gamma_pos: float = Field(1.0, ge=0, description="Focusing exponent of present labels. Used by loss asl.")
    clip: float = Field(0.05, ge=0, lt=1, description="Taken off the probability of absent labels. Used by loss asl.")
    scene_weight: float = Field(
        1.0, ge=0, description="Weight of the entropy term on the scenes; used by networks with scenes (xuesgcn)."
    )


def references_needed(settings: Settings) -> Literal["none", "own", "all"]:
    """Which of the server's prototypes the client needs: none."""
    del settings
    return "none"


def asymmetric_loss(
    logits: "Tensor", targets: "Tensor", gamma_neg: float = 4.0, gamma_pos: float = 1.0, clip: float = 0.05
) -> "Tensor":
    """-(1 - p)^gamma_pos log p for present labels, -p_m^gamma_neg log(1 - p_m) for absent ones (eqs 4-6).

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
    present = logits.neg().sigmoid().clamp(min=TINY) ** gamma_pos * -F.logsigmoid(logits)
    # Without a margin 1 - p reaches 0 in float32, its logarithm taken from the logit does not.
    surprise = -F.logsigmoid(-logits) if clip == 0.0 else -(-shifted).log1p()
    absent = shifted.clamp(min=TINY) ** gamma_neg * surprise
    return targets * present + (1.0 - targets) * absent


def scene_entropy(scenes: "Tensor") -> "Tensor":
    """Mean entropy of the images' scenes plus what the entropy of their mean lacks to log K.

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


def make(scene: Scene) -> Step:
    """The step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Networks with scenes are handed the targets, which they count. Reported are ``classification``, the mean per label,
    and ``scenes``, the mean per image.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits

    s: Settings = scene.settings
    network = cast("Any", scene.model)
    has_scenes, forward = hasattr(network, "scene_forward"), forward_of(scene.model)

    def step(images: "Tensor", targets: "Tensor") -> Loss:
        scenes: Tensor | None = None
        if has_scenes:
            logits, scenes, features = network.scene_forward(images, targets)
        else:
            logits, features = forward(images)
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
        return Loss(total, sums, features)

    return step
