"""The contrastive loss of MOON and of FMMAN's ``contrast_mode: own_cluster``, as a pure function."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity


def contrastive_loss(embedding: Tensor, candidates: Sequence[Tensor], positive: int, temperature: float) -> Tensor:
    """Return the cross entropy over the cosines between an embedding and its candidates, one of which is the positive.

    -log softmax(c / temperature)[positive] with c_i = cosine(embedding, candidate_i): MOON, eq 3.

    Args:
        embedding: Embeddings of the model in training [B, F], with gradient.
        candidates: K tensors [B, F], without gradient.
        positive: Index of the candidate that the embedding should be close to.
        temperature: Divides the cosines.

    Returns:
        Per image [B].
    """
    cosines = torch.stack([cosine_similarity(embedding, other, dim=-1) for other in candidates], dim=-1)  # [B, K]
    return -torch.log_softmax(cosines / temperature, dim=-1)[..., positive]
