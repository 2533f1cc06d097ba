"""FMMAN's local objective, eqs 2, 8, 10, 11 and 12 (docs/algorithms/fmman.md).

Without reference models it is label-mask training with the graph autoencoder: one mask, from the local model, and no
eq 11. With a network without states (``model.fmman.use_state: false``) it is one pass over all labels without masks.
"""

from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from models.settings.section import Section
from tasks.client.objectives import LocalContext, Loss, Needed, Reference, Step
from tasks.core.problem_kind import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from models.label_aware.fmman import FmmanNetwork, HeadOutput
    from tasks.client.objectives.label_mask.masked_loss import MaskedLoss

    Counted = list[tuple[Tensor, int]]  # tensors, and how often each counts

DESCRIPTION = "FMMAN, eqs 2, 8, 10-12 (J. Low Power Electron. Appl. 2025, 15(3), 46)"
KINDS: tuple[Kind, ...] = ("multi_label",)  # it masks some labels and predicts the others


class Settings(Section):
    """Weights and interpretations of FMMAN's loss; docs/fmman.md explains them."""

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
    corr_rho: float = Field(0.5, gt=0, le=1, description="Smallest P(j | c) with `cooccur`.")
    mask_sources: Literal["all", "local", "global"] = Field("all", description="Models whose predictions mask labels.")
    ae_target: Literal["masked_labels", "label_embeddings"] = Field("masked_labels", description="X_n of eq 8.")
    ae_adj_target: Literal["sim", "norm"] = Field("sim", description="Eq 8's target: edge strength or adjacency.")
    w_rec: float = Field(1.0, ge=0, description="Weight of eq 8's reconstruction.")
    w_con: float = Field(1.0, ge=0, description="Weight of eq 8's consistency.")
    w_kl: float = Field(
        0.0, ge=0, description="Weight of the KL divergence of the encoder's Gaussian to N(0, 1); the paper has none."
    )
    loss_reduction: Literal["mean", "paper_sum"] = Field("mean", description="Means, or sums as printed.")
    contrast_mode: Literal["sum_all", "own_cluster"] = Field("sum_all", description="Eq 11, first term.")
    temperature: float = Field(0.5, gt=0, description="Temperature of `own_cluster`.")
    prox: Literal["sum_all", "own_cluster", "off"] = Field("sum_all", description="Eq 11, second term.")
    lambda_contrast: float = Field(0.01, ge=0, description="Weight of the contrastive loss (the paper's mu).")
    lambda_prox: float = Field(1e-4, ge=0, description="Weight of the parameter term (mu squared).")


def references_needed(settings: Settings) -> Needed:
    """Return which prototypes a client needs; with "none" only the model that it trains is sent."""
    prox = settings.prox != "off" and settings.lambda_prox > 0
    masks = settings.use_uncertainty and settings.mask_sources != "local"
    if masks or settings.lambda_contrast > 0 or (prox and settings.prox == "sum_all"):
        return "all"
    return "own_cluster" if prox else "none"


def make(local: LocalContext) -> Step:
    """Return the step for one client: ``step(images [B, 3, H, W] in 0..1, targets [B, C]) -> Loss``.

    Raises:
        UserError: If the network has no label states.
    """
    from tasks.client.objectives.label_mask.masked_loss import with_states

    return _FmmanStep(local, with_states(local.model, "fmman"))


class _FmmanStep:
    """One local step (docs/algorithms/fmman.md). Holds everything that is constant over the batches."""

    def __init__(self, local: LocalContext, model: "FmmanNetwork") -> None:
        from tasks.client.objectives.label_mask.fmman_losses import SquaredDistance
        from tasks.client.objectives.label_mask.label_states import related_labels

        self.local, self.model, self.settings = local, model, local.settings
        s, table = self.settings, self.model.label_embeddings.detach()
        self.related = related_labels(table, local.targets, s.corr_rule, s.corr_k, s.corr_rho)
        self.distance = None
        references = local.references
        if references and self.settings.prox == "own_cluster":  # once, also in stage 1, where all prototypes are equal
            references = (Reference(references[local.assigned_cluster or 0].model),)
        if references and self.settings.prox != "off" and self.settings.lambda_prox > 0:
            self.trainable = [name for name, value in self.model.named_parameters() if value.requires_grad]
            weights = [dict(reference.model.named_parameters()) for reference in references]
            self.distance = SquaredDistance(
                [[tensors[name] for name in self.trainable] for tensors in weights],
                [reference.multiplicity for reference in references],
            )

    def __call__(self, images: "Tensor", targets: "Tensor") -> Loss:
        from tasks.client.objectives.label_mask.masked_loss import masked_loss

        tokens = self.model.encode_image(images)
        if self.model.options.use_state:
            masks, z_references = self._masks(images, targets, tokens)
        else:
            masks, z_references = self._no_masks(images)
        loss = masked_loss(self.model, tokens, targets, masks)
        total, sums = self._classification_and_autoencoder(loss, len(images))
        z = loss.output.z[-len(images) :]  # under the last mask
        return Loss(total + self._regularisation(z, z_references, sums), sums, z)

    def _masks(self, images: "Tensor", targets: "Tensor", tokens: "Tensor") -> "tuple[Counted, Counted]":
        """Return the masks [B, C], and each reference's embeddings z under its own mask (no gradient)."""
        import torch

        from tasks.client.objectives.label_mask.masked_loss import predict_all_unknown

        s, masks, z_references = self.settings, [], []
        needs_local = s.mask_sources != "global" or not self.local.references
        predicted = self._local_predictions(tokens) if needs_local or s.state_init == "pseudo" else None
        base = self._base_states(targets, predicted)
        with torch.no_grad():
            for reference in self.local.references:
                network = cast("FmmanNetwork", reference.model)
                tokens_there = network.encode_image(images)
                states = self._apply(base, predict_all_unknown(network, tokens_there))
                if s.mask_sources != "local":
                    masks.append((states, reference.multiplicity))
                if s.lambda_contrast > 0:
                    z_references.append((network.head(tokens_there, states).z, reference.multiplicity))
        if needs_local:
            assert predicted is not None
            masks.append((self._apply(base, predicted), 1))
        return masks, z_references

    def _no_masks(self, images: "Tensor") -> "tuple[Counted, Counted]":
        """Return one mask with every label unknown, and the references' embeddings: the case without states."""
        import torch

        with torch.no_grad():
            references = self.local.references if self.settings.lambda_contrast > 0 else ()
            z_references = [
                (cast("FmmanNetwork", reference.model).embed(images), reference.multiplicity)
                for reference in references
            ]
        return [(self.model.unknown(len(images)), 1)], z_references

    def _local_predictions(self, tokens: "Tensor") -> "Tensor":
        """Return the local model's predictions with all labels unknown [B, C]."""
        import torch

        from tasks.client.objectives.label_mask.masked_loss import evaluating, predict_all_unknown

        # Detached tokens: a second pass through the backbone would update BatchNorm twice.
        with evaluating(self.model), torch.no_grad():
            probabilities = predict_all_unknown(self.model, tokens.detach())
        torch.clear_autocast_cache()  # torch before 2.10 reuses casts made here, which have no gradient
        return probabilities

    def _base_states(self, targets: "Tensor", predicted: "Tensor | None") -> "Tensor":
        from tasks.client.objectives.label_mask import label_states

        s = self.settings
        if s.state_init == "random01":
            return label_states.random_states(targets, self.local.generator)
        if s.state_init == "pseudo":
            assert predicted is not None
            return label_states.pseudo_states(predicted, s.tau, s.eps)
        return label_states.draw_known_states(targets, self.local.generator, s.known_share)

    def _apply(self, base: "Tensor", probabilities: "Tensor") -> "Tensor":
        from tasks.client.objectives.label_mask.label_states import mask_uncertain

        s = self.settings
        if not s.use_uncertainty:
            return base
        return mask_uncertain(base, probabilities, self.related, s.tau, s.eps, s.band)

    def _classification_and_autoencoder(
        self, loss: "MaskedLoss", batch: int
    ) -> "tuple[Tensor, dict[str, tuple[Tensor, float]]]":
        """Return eqs 10 and 8, as means over images and masks or as sums, and the reported sums."""
        import torch

        from tasks.client.objectives.label_mask.fmman_losses import mean_pair_cosine

        scale = 1.0 if self.settings.loss_reduction == "paper_sum" else 1.0 / (batch * loss.masks)
        if loss.output.features is None:
            return scale * loss.total, loss.sums
        autoencoder, images = (loss.multiplicity * self._autoencoder(loss.output)).sum(), float(batch * loss.masks)
        with torch.no_grad():
            cosine = (loss.multiplicity * mean_pair_cosine(self._mean_features(loss.output))).sum()
        sums = loss.sums | {"autoencoder": (autoencoder.detach(), images), "feature_cosine": (cosine, images)}
        return scale * (loss.total + autoencoder), sums

    def _mean_features(self, output: "HeadOutput") -> "Tensor":
        """Return F [B, C, d] as at evaluation: eq 7's noise is as large as the mean and would hide a collapse."""
        assert output.mean is not None
        return output.mean + output.masked_labels if self.model.options.gae_residual else output.mean

    def _autoencoder(self, output: "HeadOutput") -> "Tensor":
        """Return eq 8 per image [B]; with ``paper_sum`` sums over labels and pairs instead of means."""
        from tasks.client.objectives.label_mask.fmman_losses import consistency_error, gaussian_kl, reconstruction_error

        s, classes = self.settings, output.masked_labels.shape[1]
        target = output.masked_labels.detach()  # a learned state table must not shrink to suit the decoder
        if s.ae_target == "label_embeddings":
            target = self.model.label_embeddings.expand_as(output.masked_labels)
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
        """Return eq 11 with its two weights; adds its parts to the reported sums."""
        from tasks.client.objectives.contrastive import contrastive_loss
        from tasks.client.objectives.label_mask.fmman_losses import prototype_contrast

        s, extra = self.settings, z_local.new_zeros(())
        if z_references:
            candidates = [z for z, count in z_references for _ in range(count)]
            if s.contrast_mode == "own_cluster" and self.local.assigned_cluster is not None:
                each = contrastive_loss(z_local, candidates, self.local.assigned_cluster, s.temperature)
            else:
                each = prototype_contrast(z_local, candidates)
            sums["contrast"] = (each.detach().sum(), float(len(each)))
            extra = extra + s.lambda_contrast * (each.sum() if s.loss_reduction == "paper_sum" else each.mean())
        if self.distance is not None:
            current = dict(self.model.named_parameters())
            distance = self.distance([current[name] for name in self.trainable])
            sums["distance"] = (distance.detach(), 1.0)
            extra = extra + s.lambda_prox * distance
        return extra
