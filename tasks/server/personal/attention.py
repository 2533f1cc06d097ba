"""Attention between clients: from the layers that they sent to N x N weights (docs/algorithms/fedscrap.md).

Pure functions of numbers. W [N, P] has one client's flattened layer in each row. Everything that the readings need is a
Gram matrix G = D D^T of some rows D; it is added up over ranges of entries, so that W is never in memory as a whole.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from tasks.server.aggregators.mixing import SparseRow
from tasks.server.personal.attention_settings import Reading

TEMPERATURES: dict[str, float] = {
    "centered_cosine": 0.5,
    "update_cosine": 0.2,
    "cosine": 0.1,
    "rbf": 0.5,
    "dot_literal": 1.0,
    "scaled_dot": 1.0,
}
COSINES = ("centered_cosine", "update_cosine", "cosine")
DOTS = ("dot_literal", "scaled_dot")
DISTANCES = ("rbf", "inverse_distance", "distance_literal")
CENTRED = ("centered_cosine", *DISTANCES)  # unchanged by centring, which keeps the digits that differ
NEAR = 1e-8  # epsilon of 1 / (d + epsilon), as a share of the mean distance
SAME = 1e-12  # a squared norm below this share of the clients' mean is a rounding error: the client did not change


def gram_matrix(blocks: Iterable[Tensor], count: int, *, centred: bool) -> Tensor:
    """Return D D^T.

    Args:
        blocks: D in ranges of its columns, each float64 [N, P']; they are changed.
        count: N.
        centred: Whether the mean over the clients is subtracted from each column first.

    Returns:
        float64 [N, N].
    """
    gram = torch.zeros(count, count, dtype=torch.float64)
    for block in blocks:
        if centred:
            block -= block[0].clone()  # equal rows become exact zeros, and the mean's rounding error small
            block -= block.mean(0)
        gram.addmm_(block, block.T)
    return gram


def cosines(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines between rows of D, and which rows are not zero.

    Args:
        gram: D D^T, [N, N].

    Returns:
        [N, N], 0 where a row is zero; [N] bool.
    """
    squares = gram.diagonal()
    alive = squares > SAME * squares.mean()
    norms = squares.clamp(min=0).sqrt()
    scale = norms.reciprocal().masked_fill(~alive, 0.0)
    return (gram * scale[:, None] * scale[None, :]).clamp(-1, 1), alive


def distances(gram: Tensor) -> Tensor:
    """Return all distances |w_i - w_j|, [N, N], from the Gram matrix of the centred rows: g_ii + g_jj - 2 g_ij."""
    squares = gram.diagonal()
    found = squares[:, None] + squares[None, :] - (gram + gram.T)
    return found.clamp(min=0).fill_diagonal_(0).sqrt()


def softmax_weights(scores: Tensor, self_weight: float | None = None) -> Tensor:
    """Return the row-wise softmax; with ``self_weight`` s the diagonal is s and the others of a row sum to 1 - s.

    Args:
        scores: [N, N].
        self_weight: s.
    """
    if self_weight is None:
        return scores.softmax(1)
    others = scores.masked_fill(torch.eye(len(scores), dtype=torch.bool), -torch.inf)
    return with_self_weight(others.softmax(1), self_weight)


def with_self_weight(weights: Tensor, self_weight: float) -> Tensor:
    """Return weights with s on the diagonal and the others of each row rescaled to 1 - s; alike where they are all 0.

    Args:
        weights: Non-negative, [N, N], N at least 2.
        self_weight: s.
    """
    others = weights.clone().fill_diagonal_(0)
    sums, alike = others.sum(1, keepdim=True), (1 - torch.eye(len(weights), dtype=weights.dtype)) / (len(weights) - 1)
    others = torch.where(sums > 0, others / sums.clamp(min=torch.finfo(weights.dtype).tiny), alike)
    return (others * (1 - self_weight)).fill_diagonal_(self_weight)


def attention(
    gram: Tensor,
    reading: Reading,
    temperature: float,
    entries: int,
    self_weight: float | None = None,
    query: Tensor | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return the attention A [N, N] of one layer, rows sum to 1; row i makes client i's layer.

    A layer in which all clients are equal keeps its values: A is the identity (``distance_literal``: 1 / N).

    Args:
        gram: Of the rows that the reading is about: centred ones for ``CENTRED``, changes for ``update_cosine``.
        reading: The reading.
        temperature: T; unused by the readings that have none.
        entries: P, the layer's number of entries.
        self_weight: Weight of a client's own layer; ``None``: the reading decides (``inverse_distance``: 1 / N).
        query: a_q, [N]; multiplies the rows on the left of a dot product.
        key: a_k, [N]; on the right.
    """
    count = len(gram)
    if count == 1:
        return torch.ones(1, 1, dtype=gram.dtype)
    if reading in COSINES:
        return _cosine_attention(gram, temperature, self_weight)
    if reading in DOTS:
        scores = gram / (entries**0.5 if reading == "scaled_dot" else 1.0)
        scores = scores if query is None else scores * query[:, None]
        scores = scores if key is None else scores * key[None, :]
        return softmax_weights(scores / temperature, self_weight)
    return _distance_attention(distances(gram), reading, temperature, self_weight)


def _cosine_attention(gram: Tensor, temperature: float, self_weight: float | None) -> Tensor:
    """Return softmax(cos / T); a client without any change is given the plain mean of those that have one."""
    similar, alive = cosines(gram)
    if not alive.any():
        return torch.eye(len(gram), dtype=gram.dtype)
    plain = (alive.to(gram.dtype) / alive.sum()).expand(len(gram), -1)
    plain = plain if self_weight is None else with_self_weight(plain, self_weight)
    return torch.where(alive[:, None], softmax_weights(similar / temperature, self_weight), plain)


def _distance_attention(d: Tensor, reading: Reading, temperature: float, self_weight: float | None) -> Tensor:
    """Return the weights of the readings that are about distances [N, N]."""
    count, mean = len(d), d.sum() / (len(d) * (len(d) - 1))
    if reading == "distance_literal":
        sums = d.sum(1, keepdim=True)
        weights = torch.where(sums > 0, d / sums, torch.full_like(d, 1 / count))  # NaN of 0 / 0 is not chosen
        return weights if self_weight is None else with_self_weight(weights, self_weight)
    if mean <= 0:
        return torch.eye(count, dtype=d.dtype)
    if reading == "rbf":
        return softmax_weights(-d / (temperature * mean), self_weight)
    own = 1 / count if self_weight is None else self_weight
    return with_self_weight(1 / (d + NEAR * mean), own)


def sparse_rows(weights: Tensor, kept: int, self_weight: float | None = None) -> list[SparseRow]:
    """Return the ``kept`` largest weights of each row, rescaled to the row's sum 1; of equal ones the first.

    With a fixed ``self_weight`` the client's own counts among them and is not rescaled.

    Args:
        weights: A, [N, N].
        kept: k, below N.
        self_weight: s, if it is fixed.
    """
    count = len(weights)
    if self_weight is not None:
        weights = weights.clone().fill_diagonal_(torch.inf)  # it is among them
    places = weights.sort(dim=1, descending=True, stable=True).indices[:, :kept].sort(dim=1).values
    values = weights.gather(1, places)
    if self_weight is not None:
        own = places == torch.arange(count)[:, None]
        others = values.masked_fill(own, 0.0)
        sums = others.sum(1, keepdim=True)
        alike = (~own).to(weights.dtype) / (kept - 1)
        others = torch.where(sums > 0, others / sums.clamp(min=torch.finfo(weights.dtype).tiny), alike)
        values = torch.where(own, torch.as_tensor(self_weight, dtype=weights.dtype), others * (1 - self_weight))
    else:
        values = values / values.sum(1, keepdim=True)
    return [SparseRow(count, p, v) for p, v in zip(places.tolist(), values.tolist(), strict=True)]
