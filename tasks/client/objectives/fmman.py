"""FMMAN's local objective, eqs 2, 8, 10, 11 and 12, for the FMMAN network (specification 1.8 to 1.10).

Without guides (FedAvg of the same network) it is label-mask training with the graph autoencoder alone:
one mask, from the local model, and no eq 11.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from tasks.client.objectives import Guide, Loss, Scene, Step

if TYPE_CHECKING:
    from torch import Tensor, nn

    from models.fmman import FmmanNetwork

TITLE = "FMMAN, eqs 2, 8, 10-12 (J. Low Power Electron. Appl. 2025, 15(3), 46)"


class Settings(Section):
    """Weights and readings of FMMAN's loss; docs/fmman.md says which reading is which."""

    tau: float = Field(0.5, gt=0, lt=1, description="Threshold of eq 2.")
    eps: float = Field(0.015, ge=0, lt=0.5, description="Half-width of the uncertain band of eq 2.")
    use_uncertainty: bool = Field(True, description="Whether eq 2 masks uncertain labels at all.")
    state_init: Literal["lmt", "random01", "pseudo"] = Field("lmt", description="Base states in training.")
    known_share: float = Field(0.75, ge=0, le=1, description="Largest share of labels known in `lmt`.")
    corr_rule: Literal["topk", "zscore", "cooccur", "none"] = Field("topk", description="Related labels.")
    corr_k: int = Field(2, ge=1, description="Related labels per label with `topk`.")
    corr_rho: float = Field(0.5, gt=0, le=1, description="Least P(j | c) with `cooccur`.")
    mask_sources: Literal["all", "local", "global"] = Field("all", description="Whose predictions mask.")
    ae_target: Literal["masked_labels", "label_table"] = Field("masked_labels", description="X_n of eq 8.")
    ae_adj_target: Literal["sim", "norm"] = Field("sim", description="Eq 8's target: edge strength or adjacency.")
    w_rec: float = Field(1.0, ge=0, description="Weight of eq 8's reconstruction.")
    w_con: float = Field(1.0, ge=0, description="Weight of eq 8's consistency.")
    loss_reduction: Literal["mean", "paper_sum"] = Field("mean", description="Means, or sums as printed.")
    contrast_mode: Literal["sum_all", "own_group"] = Field("sum_all", description="Eq 11, first term.")
    temperature: float = Field(0.5, gt=0, description="Temperature of `own_group`.")
    prox: Literal["sum_all", "own_group", "off"] = Field("sum_all", description="Eq 11, second term.")
    lambda_contrast: float = Field(0.01, ge=0, description="Weight of the contrast (the paper's mu).")
    lambda_prox: float = Field(1e-4, ge=0, description="Weight of the parameter term (mu squared).")


def uses_guides(settings: Settings) -> bool:
    """Whether the client needs the server's prototypes at all; if not, only its start model is sent."""
    prox = settings.prox != "off" and settings.lambda_prox > 0
    masks = settings.use_uncertainty and settings.mask_sources != "local"
    return masks or settings.lambda_contrast > 0 or prox


def make(scene: Scene) -> Step:
    """The step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Raises:
        UserError: If the network has no states to mask, or the settings ask for what is not there.
    """
    from models.fmman import FmmanNetwork

    if not isinstance(scene.model, FmmanNetwork):
        raise UserError(
            "objective fmman needs the fmman network",
            where="objective.name",
            found=type(scene.model).__name__,
            hint="--set model.name=fmman, or --set objective.name=bce",
        )
    return _FmmanStep(scene)


@contextlib.contextmanager
def evaluating(model: "nn.Module") -> Iterator[None]:
    """Eval mode for the duration; every module gets back the mode it had (frozen BatchNorm stays frozen)."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class _FmmanStep:
    """One local step as in specification 1.10. Holds what does not change from batch to batch."""

    def __init__(self, scene: Scene) -> None:
        from tasks.client.objectives.fmman_losses import ParameterAnchors
        from tasks.client.objectives.states import related_labels

        self.scene, self.settings = scene, scene.settings
        self.model = cast("FmmanNetwork", scene.model)
        self.related = related_labels(self.model.label_table, scene.targets, self.settings)
        self.anchors = None
        guides = scene.guides
        if guides and self.settings.prox == "own_group":  # once, also in stage 1, where all prototypes are equal
            guides = (Guide(guides[scene.own or 0].model),)
        if guides and self.settings.prox != "off" and self.settings.lambda_prox > 0:
            self.trainable = [name for name, value in self.model.named_parameters() if value.requires_grad]
            anchors = [dict(guide.model.named_parameters()) for guide in guides]
            self.anchors = ParameterAnchors(
                [[anchor[name] for name in self.trainable] for anchor in anchors], [guide.copies for guide in guides]
            )

    def __call__(self, images: "Tensor", targets: "Tensor") -> Loss:
        base_probabilities, features = self._local_view(images)
        base = self._base_states(targets, base_probabilities)
        masks, z_guides = self._masks(images, base, base_probabilities)
        total, sums, z_local = self._masked_losses(features, targets, masks)
        total = total + self._regularisation(z_local, z_guides, sums)
        return Loss(total, sums)

    def _local_view(self, images: "Tensor") -> "tuple[Tensor, Tensor]":
        """The local model's predictions with all labels unknown [B, C], and its image tokens with gradient."""
        import torch

        features = self.model.encode_image(images)
        # Detached features: a second pass through the backbone would update BatchNorm twice.
        with evaluating(self.model), torch.no_grad():
            probabilities = self.model.head(features.detach(), self.model.unknown(1)).logits.float().sigmoid()
        return probabilities, features

    def _base_states(self, targets: "Tensor", probabilities: "Tensor") -> "Tensor":
        from tasks.client.objectives import states

        s = self.settings
        if s.state_init == "random01":
            return states.random_states(targets, self.scene.generator)
        if s.state_init == "pseudo":
            return states.pseudo_states(probabilities, s.tau, s.eps)
        return states.draw_known_states(targets, self.scene.generator, s.known_share)

    def _masks(
        self, images: "Tensor", base: "Tensor", local: "Tensor"
    ) -> "tuple[list[tuple[Tensor, int]], list[tuple[Tensor, int]]]":
        """The masks with how often each counts, and the guides' features with their copies (no gradient)."""
        import torch

        masks: list[tuple[Tensor, int]] = []
        z_guides: list[tuple[Tensor, int]] = []
        with torch.no_grad():
            for guide in self.scene.guides:
                network = cast("FmmanNetwork", guide.model)
                tokens = network.encode_image(images)
                alone = network.head(tokens, network.unknown(1)).logits.float().sigmoid()
                states = self._apply(base, alone)
                if self.settings.mask_sources != "local":
                    masks.append((states, guide.copies))
                if self.settings.lambda_contrast > 0:
                    z_guides.append((network.head(tokens, states).z, guide.copies))
        if self.settings.mask_sources != "global" or not masks:
            masks.append((self._apply(base, local), 1))
        return masks, z_guides

    def _apply(self, base: "Tensor", probabilities: "Tensor") -> "Tensor":
        from tasks.client.objectives.states import mask_uncertain

        if not self.settings.use_uncertainty:
            return base
        return mask_uncertain(base, probabilities, self.related, self.settings.tau, self.settings.eps)

    def _masked_losses(
        self, features: "Tensor", targets: "Tensor", masks: "list[tuple[Tensor, int]]"
    ) -> "tuple[Tensor, dict[str, tuple[Tensor, float]], Tensor]":
        """Eqs 8 and 10 under every mask; returns the total, the reported sums and the last mask's z [B, d]."""
        import torch

        from tasks.client.objectives.fmman_losses import unknown_label_bce

        batch, count = len(targets), sum(copies for _, copies in masks)
        # All masks in one pass, [M * B, ...]: the head is small, and M calls would cost nearly M times as much.
        states = torch.cat([mask for mask, _ in masks])
        copies = torch.cat([targets.new_full((batch,), copies, dtype=torch.float32) for _, copies in masks])
        output = self.model.head(features.repeat(len(masks), 1, 1), states)
        bce, unknown = unknown_label_bce(output.logits, targets.repeat(len(masks), 1), states)  # [M * B] each
        bce_sum, autoencoder = (copies * bce).sum(), features.new_zeros(())
        if output.features is not None:
            autoencoder = (copies * self._autoencoder(output)).sum()
        scale = 1.0 if self.settings.loss_reduction == "paper_sum" else 1.0 / (batch * count)
        sums = {
            "classification": (bce_sum.detach(), float((copies * unknown).sum())),
            "autoencoder": (autoencoder.detach(), float(batch * count)),
        }
        return scale * (bce_sum + autoencoder), sums, output.z[-batch:]

    def _autoencoder(self, output: Any) -> "Tensor":
        """Eq 8 per image [B]; with ``paper_sum`` sums over labels and pairs instead of means."""
        from tasks.client.objectives.fmman_losses import consistency_error, reconstruction_error

        s, classes = self.settings, output.masked_labels.shape[1]
        target = output.masked_labels
        if s.ae_target == "label_table":
            target = self.model.label_table.expand_as(output.masked_labels)
        strength = output.strength if s.ae_adj_target == "sim" else output.adjacency
        reconstruction = reconstruction_error(target, output.reconstruction)
        consistency = consistency_error(output.features, strength)
        if s.loss_reduction == "paper_sum":
            reconstruction, consistency = reconstruction * classes, consistency * classes**2
        return s.w_rec * reconstruction + s.w_con * consistency

    def _regularisation(
        self,
        z_local: "Tensor",
        z_guides: "list[tuple[Tensor, int]]",
        sums: "dict[str, tuple[Tensor, float]]",
    ) -> "Tensor":
        """Eq 11 with its two weights; adds what it found to the reported sums."""
        from tasks.client.objectives.fmman_losses import own_group_contrast, prototype_contrast

        s, extra = self.settings, z_local.new_zeros(())
        if z_guides:
            copies = [z for z, count in z_guides for _ in range(count)]
            if s.contrast_mode == "own_group" and self.scene.own is not None:
                each = own_group_contrast(z_local, copies, self.scene.own, s.temperature)
            else:
                each = prototype_contrast(z_local, copies)
            sums["contrast"] = (each.detach().sum(), float(len(each)))
            extra = extra + s.lambda_contrast * (each.sum() if s.loss_reduction == "paper_sum" else each.mean())
        if self.anchors is not None:
            present = dict(self.model.named_parameters())
            distance = self.anchors.distance([present[name] for name in self.trainable])
            sums["distance"] = (distance.detach(), 1.0)
            extra = extra + s.lambda_prox * distance
        return extra
