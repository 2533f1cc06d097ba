"""The plain classifier: a backbone's vector and one linear layer.

Letters: B batch, C labels, D backbone width, F width of the embedding. ResNet-18 and ResNet-50 are built
here, the networks of timm's classes in ``models.classifiers.timm_classifiers``.
"""

from torch import Tensor, nn

from models.classifiers.backbones import Backbone, ResNetTokens
from models.registry import ModelSpec
from models.settings import BackboneSettings, ModelSettings


class Classifier(nn.Module):
    """An independent logit for each label from one linear layer.

    Args:
        backbone: Images to vectors [B, D].
        classes: Number of labels C.
        projection: Width F of MOON's projection head between backbone and linear layer:
            linear(D -> D), ReLU, linear(D -> F) (QinbinLi/MOON, model.py); 0: no head, F = D.
    """

    def __init__(self, backbone: Backbone, classes: int, projection: int = 0) -> None:
        super().__init__()
        self.backbone = backbone
        width = backbone.width
        self.projection: nn.Module = nn.Identity()
        if projection:
            self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection))
        self.readout = nn.Linear(projection or width, classes)

    def embed(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to embeddings [B, F], the input of ``readout``."""
        vectors: Tensor = self.projection(self.backbone.pooled(x))
        return vectors

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to logits [B, C]."""
        logits: Tensor = self.readout(self.embed(x))
        return logits


def build(settings: ModelSettings, spec: ModelSpec) -> Classifier:
    """Return ResNet-18 (size from ``settings.backbone``) or ResNet-50 (from ``settings.timm``) ."""
    if settings.name == "resnet50":
        blocks = settings.timm.scaled("resnet50").blocks
        backbone = ResNetTokens(BackboneSettings(width=settings.timm.width), blocks, True, settings.inputs)
    else:
        backbone = ResNetTokens(settings.backbone, inputs=settings.inputs)
    return Classifier(backbone, len(spec.classes), settings.classifier.projection)
