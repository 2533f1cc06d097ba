"""XueSGCN's network: one label graph per scene (MiLab-HITSZ/2023XueSGCN, IJCNN 2024; docs/algorithms/xuesgcn.md).

The network sorts each image into one of K scenes, counts which labels occur together in a scene, and refines the
labels' features over the graph of the image's scene. The paper's text was not available; this follows the published
code, with ResNet-18 and the run's label embeddings in place of ResNet-101 and GloVe vectors.

Letters: B batch, S image tokens, C labels, D token width, K scenes, n inner width of the attention.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.classifiers.resnet import ResNetTokens
from models.label_aware.fmman import LabelClassifier
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from models.weights.state_spec import TensorSpec

LEAK = 0.2  # negative slope of the LeakyReLU between the two graph convolutions
EPS = 1e-8  # keeps the quotient at 0 for labels that a scene has not seen


class SceneOutput(NamedTuple):
    """The network's output for one batch.

    Attributes:
        logits: [B, C], before the sigmoid.
        scenes: [B, K], before the softmax.
        context: [B, D], the mean over the image tokens: the embedding.
    """

    logits: Tensor
    scenes: Tensor
    context: Tensor


def co_occurrence_counts(targets: Tensor, scenes: Tensor, number: int) -> Tensor:
    """Return how often two labels occur together in a scene: the sum of y y^T over each scene's images.

    Args:
        targets: y [B, C], 0/1.
        scenes: The images' scenes m [B], int64.
        number: K.

    Returns:
        Counts [K, C, C] float32, whole numbers.
    """
    y = targets.to(torch.float32)
    pairs = y.unsqueeze(2) * y.unsqueeze(1)  # [B, C, C]; no matmul: bf16 autocast would round it
    return torch.zeros(number, *pairs.shape[1:], device=y.device).index_add_(0, scenes, pairs)


def label_probabilities(counts: Tensor) -> Tensor:
    """Return P[i, j] = Co[i, j] / (Co[i, i] + 1e-8), the probability of label j where label i is; 1 on the diagonal.

    Args:
        counts: Co [..., C, C].

    Returns:
        P [..., C, C]; the identity where nothing was counted.
    """
    seen = counts.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)  # [..., C, 1]
    identity = torch.eye(counts.shape[-1], dtype=counts.dtype, device=counts.device)
    return torch.where(identity.bool(), identity, counts / (seen + EPS))


def normalized_adjacency(probabilities: Tensor) -> Tensor:
    """Return the adjacency D P^T D with D = diag(row sums of P)^(-1/2): [..., C, C] -> [..., C, C]."""
    scale = probabilities.sum(-1).rsqrt()  # [..., C]; the diagonal of 1 keeps the sums from 0
    return scale.unsqueeze(-1) * probabilities.transpose(-1, -2) * scale.unsqueeze(-2)


def bilinear_attention(tokens: Tensor, images: Tensor, labels: Tensor, direction: Tensor) -> Tensor:
    """Return for each label the mean of the tokens weighted by softmax_s of v . tanh(x_s * q_c).

    The published w(Wh tanh(...)) is linear in the tanh, so v = Wh^T w is taken once instead of Wh for every pair of
    token and label; its two biases cancel in the softmax and are left out.

    Args:
        tokens: [B, S, D], averaged.
        images: x = U tokens [B, S, n].
        labels: q = Q label vectors [C, n].
        direction: v [n].

    Returns:
        Label features [B, C, D].
    """
    scores = torch.tanh(images.unsqueeze(1) * labels.unsqueeze(1)) @ direction  # [B, C, S, n] -> [B, C, S]
    return scores.softmax(-1) @ tokens


class BilinearAttention(nn.Module):
    """The projections of ``bilinear_attention``.

    Args:
        dim: Token width D.
        label_dim: Width of the label vectors.
        width: Inner width n.
    """

    def __init__(self, dim: int, label_dim: int, width: int) -> None:
        super().__init__()
        self.image_proj = nn.Linear(dim, width, bias=False)  # U
        self.label_proj = nn.Linear(label_dim, width, bias=False)  # Q
        self.hidden = nn.Linear(width, width, bias=False)  # Wh
        self.target = nn.Linear(width, 1, bias=False)  # w

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Map tokens [B, S, D] and label vectors [C, d] to label features [B, C, D]."""
        direction = (self.target.weight @ self.hidden.weight).squeeze(0)  # [n]
        return bilinear_attention(tokens, self.image_proj(tokens), self.label_proj(labels), direction)


class GraphConvolution(nn.Linear):
    """The linear part of a graph convolution, without bias, initialised uniformly within 1 / sqrt(outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        """Initialise as Kipf and Welling's code, whose weight is [in, out]; called by the constructor."""
        bound = self.out_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound)


class SceneGraphNetwork(nn.Module):
    """Label features from an attention over the image's tokens, refined over the label graph of its scene.

    Args:
        settings: The whole model section.
        label_embeddings: Label vectors [C, D], unit rows, frozen.

    Attributes:
        co_occurrence: Co [K, C, C] float32, how often two labels were in one training image of a scene. Part of
            the state dict, so checkpoints contain it; the server has its own rule for it (``tasks.server.xuesgcn``).
        scene_counts: Number of training images in each scene, int64 [K].
        label_embeddings: Outside the state dict: equal at all clients, so never sent or averaged.
    """

    STATE_KINDS: ClassVar[dict[str, TensorSpec]] = {
        "scene_head.weight": TensorSpec("parameter", personal=True),
        "co_occurrence": TensorSpec("counter", personal=True, nonnegative=True),
        "scene_counts": TensorSpec("counter", personal=True, nonnegative=True),
    }

    co_occurrence: Tensor
    scene_counts: Tensor
    label_embeddings: Tensor

    def __init__(self, settings: ModelSettings, label_embeddings: Tensor) -> None:
        super().__init__()
        options = settings.xuesgcn
        self.backbone = ResNetTokens(settings.backbone, settings.inputs)
        dim, (classes, label_dim) = self.backbone.width, label_embeddings.shape
        self.register_buffer(
            "label_embeddings", label_embeddings.detach().to(torch.float32, copy=True), persistent=False
        )
        self.register_buffer("co_occurrence", torch.zeros(options.scenes, classes, classes))
        self.register_buffer("scene_counts", torch.zeros(options.scenes, dtype=torch.int64))
        self.scene_head = nn.Linear(dim, options.scenes, bias=False)
        self.attention = BilinearAttention(dim, label_dim, options.attention_width)
        self.graph1 = GraphConvolution(dim, options.graph_width)
        self.graph2 = GraphConvolution(options.graph_width, dim)
        self.merge = nn.Linear(2 * dim, dim)
        self.readout = LabelClassifier(classes, dim)

    def encode_image(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to tokens [B, S, D]."""
        tokens: Tensor = self.backbone(x).flatten(2).transpose(1, 2)
        return tokens

    def embed(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to their context [B, D], the mean over the tokens."""
        return self.encode_image(x).mean(1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to logits [B, C] without counting."""
        return self._output(self.encode_image(x), None).logits

    def scene_forward(self, x: Tensor, targets: Tensor) -> SceneOutput:
        """Count a training batch's labels in the scenes of its images, then compute the output with the new graphs.

        In eval mode the targets are ignored: labels of test images must never enter the graphs.

        Args:
            x: Images [B, 3, H, W], float in [0, 1].
            targets: Their labels [B, C], 0/1.
        """
        return self._output(self.encode_image(x), targets if self.training else None)

    def _output(self, tokens: Tensor, targets: Tensor | None) -> SceneOutput:
        context = tokens.mean(1)  # [B, D]
        scenes = self.scene_head(context)  # [B, K]
        hard = scenes.argmax(-1)  # m [B]
        if targets is not None:
            self._count(targets, hard)
        graph = normalized_adjacency(label_probabilities(self.co_occurrence))[hard]  # [B, C, C]
        labels = self.attention(tokens, self.label_embeddings)  # [B, C, D]
        refined = graph @ self.graph1(labels)  # [B, C, graph width]
        refined = graph @ self.graph2(F.leaky_relu(refined, LEAK))  # [B, C, D]
        merged = torch.tanh(self.merge(torch.cat([labels, refined], dim=-1)))
        return SceneOutput(self.readout(merged), scenes, context)

    @torch.no_grad()
    def _count(self, targets: Tensor, hard: Tensor) -> None:
        number = len(self.scene_counts)
        self.co_occurrence += co_occurrence_counts(targets, hard, number)
        self.scene_counts += torch.bincount(hard, minlength=number)


def build(settings: ModelSettings, spec: ModelSpec) -> SceneGraphNetwork:
    """Return the network with the spec's label embeddings."""
    table = spec.label_embeddings
    assert table is not None and table.shape[0] == len(spec.classes), "one label embedding for each class"
    return SceneGraphNetwork(settings, table)
