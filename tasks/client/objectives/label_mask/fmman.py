"""FMMAN's local objective, eqs 2, 8, 10, 11 and 12, for the FMMAN network (specification 1.8 to 1.10).

Without references it is label-mask training with the graph autoencoder alone: one mask, from the local model, and
no eq 11. With a network without states (``model.fmman.use_state: false``) it is one pass over all labels without masks.
"""

from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from models.base_settings import Section
from tasks.client.objectives import Loss, Reference, Scene, Step

if TYPE_CHECKING:
    from torch import Tensor

    from models.label_aware.fmman import FmmanNetwork, HeadOutput
    from tasks.client.objectives.label_mask.shared import MaskedLoss

    Counted = list[tuple[Tensor, int]]  # tensors, and how often each counts

TITLE = "FMMAN, eqs 2, 8, 10-12 (J. Low Power Electron. Appl. 2025, 15(3), 46)"


class Settings(Section):
    """Weights and readings of FMMAN's loss; docs/fmman.md says which reading is which."""

    tau: float = Field(0.5, gt=0, lt=1, description="Threshold of eq 2.")
    eps: float = Field(0.015, ge=0, lt=0.5, description="Half-width of the uncertain band of eq 2.")
    band: Literal["open", "closed"] = Field(
        "open", description="Whether tau - eps and tau + eps are in the band: open as eq 2, closed as FedLGT's code."
    )
    use_uncertainty: bool = Field(True, description="Whether eq 2 masks uncertain labels at all.")
    state_init: Literal["label_mask_training", "random01", "pseudo"] = Field(
        "label_mask_training", description="Base states in training."
    )
    known_share: float = Field(0.75, ge=0, le=1, description="Largest share of labels known in `label_mask_training`.")
    corr_rule: Literal["topk", "zscore", "cooccur", "none"] = Field("topk", description="Related labels.")
    corr_k: int = Field(2, ge=1, description="Related labels per label with `topk`.")
    corr_rho: float = Field(0.5, gt=0, le=1, description="Least P(j | c) with `cooccur`.")
    mask_sources: Literal["all", "local", "global"] = Field("all", description="Whose predictions mask.")
    ae_target: Literal["masked_labels", "label_table"] = Field("masked_labels", description="X_n of eq 8.")
    ae_adj_target: Literal["sim", "norm"] = Field("sim", description="Eq 8's target: edge strength or adjacency.")
    w_rec: float = Field(1.0, ge=0, description="Weight of eq 8's reconstruction.")
    w_con: float = Field(1.0, ge=0, description="Weight of eq 8's consistency.")
    w_kl: float = Field(
        0.0, ge=0, description="Weight of the KL divergence of the encoder's Gaussian to N(0, 1); the paper has none."
    )
    loss_reduction: Literal["mean", "paper_sum"] = Field("mean", description="Means, or sums as printed.")
    contrast_mode: Literal["sum_all", "own_group"] = Field("sum_all", description="Eq 11, first term.")
    temperature: float = Field(0.5, gt=0, description="Temperature of `own_group`.")
    prox: Literal["sum_all", "own_group", "off"] = Field("sum_all", description="Eq 11, second term.")
    lambda_contrast: float = Field(0.01, ge=0, description="Weight of the contrast (the paper's mu).")
    lambda_prox: float = Field(1e-4, ge=0, description="Weight of the parameter term (mu squared).")


def references_needed(settings: Settings) -> Literal["none", "own", "all"]:
    """Which of the server's prototypes the client needs; with ``none`` only its start model is sent."""
    prox = settings.prox != "off" and settings.lambda_prox > 0
    masks = settings.use_uncertainty and settings.mask_sources != "local"
    if masks or settings.lambda_contrast > 0 or (prox and settings.prox == "sum_all"):
        return "all"
    return "own" if prox else "none"


def make(scene: Scene) -> Step:
    """The step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Raises:
        UserError: If the network has no label states.
    """
    from tasks.client.objectives.label_mask.shared import with_states

    return _FmmanStep(scene, with_states(scene.model, "fmman"))


class _FmmanStep:
    """One local step as in specification 1.10. Holds what does not change from batch to batch."""

    def __init__(self, scene: Scene, model: "FmmanNetwork") -> None:
        from tasks.client.objectives.label_mask.fmman_losses import ParameterAnchors
        from tasks.client.objectives.label_mask.label_states import related_labels

        self.scene, self.model, self.settings = scene, model, scene.settings
        s, table = self.settings, self.model.label_table.detach()
        self.related = related_labels(table, scene.targets, s.corr_rule, s.corr_k, s.corr_rho)
        self.anchors = None
        references = scene.references
        if references and self.settings.prox == "own_group":  # once, also in stage 1, where all prototypes are equal
            references = (Reference(references[scene.own or 0].model),)
        if references and self.settings.prox != "off" and self.settings.lambda_prox > 0:
            self.trainable = [name for name, value in self.model.named_parameters() if value.requires_grad]
            anchors = [dict(reference.model.named_parameters()) for reference in references]
            self.anchors = ParameterAnchors(
                [[anchor[name] for name in self.trainable] for anchor in anchors],
                [reference.multiplicity for reference in references],
            )

    def __call__(self, images: "Tensor", targets: "Tensor") -> Loss:
        from tasks.client.objectives.label_mask.shared import masked_loss

        tokens = self.model.encode_image(images)
        if self.model.options.use_state:
            masks, z_references = self._masks(images, targets, tokens)
        else:
            masks, z_references = self._no_masks(images)
        loss = masked_loss(self.model, tokens, targets, masks)
        total, sums = self._classification_and_autoencoder(loss, len(images))
        z = loss.output.z[-len(images) :]  # the last mask's
        return Loss(total + self._regularisation(z, z_references, sums), sums, z)

    def _masks(self, images: "Tensor", targets: "Tensor", tokens: "Tensor") -> "tuple[Counted, Counted]":
        """The masks [B, C], and the references' features z under theirs (no gradient)."""
        import torch

        from tasks.client.objectives.label_mask.shared import predict_all_unknown

        s, masks, z_references = self.settings, [], []
        needs_local = s.mask_sources != "global" or not self.scene.references
        local = self._local_view(tokens) if needs_local or s.state_init == "pseudo" else None
        base = self._base_states(targets, local)
        with torch.no_grad():
            for reference in self.scene.references:
                network = cast("FmmanNetwork", reference.model)
                theirs = network.encode_image(images)
                states = self._apply(base, predict_all_unknown(network, theirs))
                if s.mask_sources != "local":
                    masks.append((states, reference.multiplicity))
                if s.lambda_contrast > 0:
                    z_references.append((network.head(theirs, states).z, reference.multiplicity))
        if needs_local:
            assert local is not None
            masks.append((self._apply(base, local), 1))
        return masks, z_references

    def _no_masks(self, images: "Tensor") -> "tuple[Counted, Counted]":
        """Without states: one pass in which every label counts, and the references' features (no gradient)."""
        import torch

        with torch.no_grad():
            references = self.scene.references if self.settings.lambda_contrast > 0 else ()
            z_references = [
                (cast("FmmanNetwork", reference.model).features(images), reference.multiplicity)
                for reference in references
            ]
        return [(self.model.unknown(len(images)), 1)], z_references

    def _local_view(self, tokens: "Tensor") -> "Tensor":
        """The local model's predictions with all labels unknown [B, C]."""
        import torch

        from tasks.client.objectives.label_mask.shared import evaluating, predict_all_unknown

        # Detached tokens: a second pass through the backbone would update BatchNorm twice.
        with evaluating(self.model), torch.no_grad():
            probabilities = predict_all_unknown(self.model, tokens.detach())
        torch.clear_autocast_cache()  # torch before 2.10 reuses casts made here, which have no gradient
        return probabilities

    def _base_states(self, targets: "Tensor", local: "Tensor | None") -> "Tensor":
        from tasks.client.objectives.label_mask import label_states

        s = self.settings
        if s.state_init == "random01":
            return label_states.random_states(targets, self.scene.generator)
        if s.state_init == "pseudo":
            assert local is not None
            return label_states.pseudo_states(local, s.tau, s.eps)
        return label_states.draw_known_states(targets, self.scene.generator, s.known_share)

    def _apply(self, base: "Tensor", probabilities: "Tensor") -> "Tensor":
        from tasks.client.objectives.label_mask.label_states import mask_uncertain

        s = self.settings
        if not s.use_uncertainty:
            return base
        return mask_uncertain(base, probabilities, self.related, s.tau, s.eps, s.band)

    def _classification_and_autoencoder(
        self, loss: "MaskedLoss", batch: int
    ) -> "tuple[Tensor, dict[str, tuple[Tensor, float]]]":
        """Eqs 10 and 8, means over images and masks or sums; and the reported sums."""
        import torch

        from tasks.client.objectives.label_mask.fmman_losses import mean_pair_cosine

        scale = 1.0 if self.settings.loss_reduction == "paper_sum" else 1.0 / (batch * loss.masks)
        if loss.output.features is None:
            return scale * loss.total, loss.sums
        autoencoder, images = (loss.multiplicity * self._autoencoder(loss.output)).sum(), float(batch * loss.masks)
        with torch.no_grad():
            cosine = (loss.multiplicity * mean_pair_cosine(self._without_noise(loss.output))).sum()
        sums = loss.sums | {"autoencoder": (autoencoder.detach(), images), "feature_cosine": (cosine, images)}
        return scale * (loss.total + autoencoder), sums

    def _without_noise(self, output: "HeadOutput") -> "Tensor":
        """F [B, C, d] as the network has it at test. The noise of eq 7 is as large as the mean and hides a collapse."""
        assert output.mean is not None
        return output.mean + output.masked_labels if self.model.options.gae_residual else output.mean

    def _autoencoder(self, output: "HeadOutput") -> "Tensor":
        """Eq 8 per image [B]; with ``paper_sum`` sums over labels and pairs instead of means."""
        from tasks.client.objectives.label_mask.fmman_losses import consistency_error, gaussian_kl, reconstruction_error

        s, classes = self.settings, output.masked_labels.shape[1]
        target = output.masked_labels.detach()  # a learnt state table must not shrink to suit the decoder
        if s.ae_target == "label_table":
            target = self.model.label_table.expand_as(output.masked_labels)
        strength = output.strength if s.ae_adj_target == "sim" else output.adjacency
        assert output.features is not None and output.reconstruction is not None and strength is not None
        strength = strength.detach()
        reconstruction = reconstruction_error(target, output.reconstruction)
        consistency = consistency_error(output.features, strength)
        labels, pairs = (classes, classes**2) if s.loss_reduction == "paper_sum" else (1, 1)
        total = s.w_rec * labels * reconstruction + s.w_con * pairs * consistency
        if s.w_kl > 0:
            assert output.mean is not None and output.deviation is not None
            total = total + s.w_kl * labels * gaussian_kl(output.mean, output.deviation)
        return total

    def _regularisation(
        self, z_local: "Tensor", z_references: "Counted", sums: "dict[str, tuple[Tensor, float]]"
    ) -> "Tensor":
        """Eq 11 with its two weights; adds what it found to the reported sums."""
        from tasks.client.objectives.label_mask.fmman_losses import own_group_contrast, prototype_contrast

        s, extra = self.settings, z_local.new_zeros(())
        if z_references:
            multiplicity = [z for z, count in z_references for _ in range(count)]
            if s.contrast_mode == "own_group" and self.scene.own is not None:
                each = own_group_contrast(z_local, multiplicity, self.scene.own, s.temperature)
            else:
                each = prototype_contrast(z_local, multiplicity)
            sums["contrast"] = (each.detach().sum(), float(len(each)))
            extra = extra + s.lambda_contrast * (each.sum() if s.loss_reduction == "paper_sum" else each.mean())
        if self.anchors is not None:
            present = dict(self.model.named_parameters())
            distance = self.anchors.distance([present[name] for name in self.trainable])
            sums["distance"] = (distance.detach(), 1.0)
            extra = extra + s.lambda_prox * distance
        return extra
