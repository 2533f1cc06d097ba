"""A network's two parts: the backbone, which encodes the image, and the head, which is everything else.

Every network keeps its image encoder as ``model.backbone``, a ``models.classifiers.backbones.Backbone``. The head is
what comes after it: a classifier's last linear layer and projection, or the label transformer and label graph.

**A file of backbone weights** (``model.backbone.weights``, ``model.timm.weights``) holds ``backbone_state``: the
tensors of ``model.backbone.published`` under the names that torchvision's or timm's files of that network use
(``conv1.weight``, ``layer1.0.bn1.running_mean``, ``blocks.0.attn.qkv.weight``), buffers included, without ``backbone.``
in front and without the head. It fits each network with the same encoder of the same size, whatever its head and its
classes.
"""

from torch import Tensor, nn

from models.classifiers.backbones import Backbone

PREFIX = "backbone."
BACKBONE, HEAD = "backbone", "head"


def backbone_of(model: nn.Module) -> Backbone:
    """Return the network's image encoder."""
    backbone = model.get_submodule("backbone")
    assert isinstance(backbone, Backbone), f"the backbone of a network is a Backbone, not a {type(backbone).__name__}"
    return backbone


def backbone_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a file of backbone weights: parameters and buffers, contiguous, on the CPU.

    ``models.weights.loading.load_backbone_weights`` reads such a file.
    """
    return {
        name: tensor.detach().cpu().contiguous() for name, tensor in backbone_of(model).published.state_dict().items()
    }


def parameter_groups(model: nn.Module) -> dict[str, list[str]]:
    """Return the names of the trainable parameters by part, ``backbone`` and ``head``, in the network's order.

    Each trainable parameter is in exactly one list; neither list is empty.
    """
    groups: dict[str, list[str]] = {BACKBONE: [], HEAD: []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[BACKBONE if name.startswith(PREFIX) else HEAD].append(name)
    return groups
