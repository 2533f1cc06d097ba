"""The plain classifier: a backbone's vector and one linear layer. The ResNets are built here, others beside it.

Letters: B batch, C labels, D backbone width, F width of the embedding.
"""

from torch import Tensor, nn

from models.classifiers.backbones import Backbone
from models.classifiers.resnet import ResNetTokens
from models.registry import ModelSpec
from models.settings.model import ModelSettings


class Classifier(nn.Module):
    """An independent logit for each label from one linear layer.

    Args:
        backbone: Images to vectors [B, D].
        classes: Number of labels C.
        projection: Width F of MOON's projection head between backbone and linear layer:
            linear(D -> D), ReLU, linear(D -> F) (QinbinLi/MOON, model.py); 0: no head, F = D.
        hidden: The network's own layers between backbone and projection, [B, D] -> [B, units].
        units: Width of their output, which is then D of the projection.
    """

    def __init__(
        self,
        backbone: Backbone,
        classes: int,
        projection: int = 0,
        hidden: nn.Module | None = None,
        units: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.hidden = hidden or nn.Identity()
        width = units or backbone.width
        self.projection: nn.Module = nn.Identity()
        if projection:
            self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection))
        self.readout = nn.Linear(projection or width, classes)

    def embed(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to embeddings [B, F], the input of ``readout``."""
        vectors: Tensor = self.projection(self.hidden(self.backbone.pooled(x)))
        return vectors

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to logits [B, C]."""
        logits: Tensor = self.readout(self.embed(x))
        return logits


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return the ResNet ``settings.name``."""
    blocks = settings.timm.scaled("resnet50").blocks if settings.name == "resnet50" else None
    backbone = ResNetTokens(settings.resnet, settings.inputs, blocks)
    return Classifier(backbone, len(spec.classes), settings.classifier.projection)
