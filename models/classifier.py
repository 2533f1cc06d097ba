"""The plain classifier: ResNet-18, mean over positions, one linear layer. Letters: B batch, C labels, D width."""

from collections.abc import Sequence

from torch import Tensor, nn

from models.backbones import ResNetTokens
from models.settings import ModelSettings


class ResNetClassifier(nn.Module):
    """ResNet-18 with an independent logit for each label (He et al., CVPR 2016)."""

    def __init__(self, settings: ModelSettings, classes: int) -> None:
        super().__init__()
        self.backbone = ResNetTokens(settings.backbone)
        self.readout = nn.Linear(self.backbone.width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W], float in [0, 1], to features [B, D], what ``readout`` takes."""
        pooled: Tensor = self.backbone(x).mean((2, 3))
        return pooled

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W], float in [0, 1], to logits [B, C]."""
        logits: Tensor = self.readout(self.features(x))
        return logits


def build(settings: ModelSettings, classes: Sequence[str], label_table: Tensor | None) -> ResNetClassifier:
    """The network for ``classes``; it has no use for ``label_table``."""
    return ResNetClassifier(settings, len(classes))
