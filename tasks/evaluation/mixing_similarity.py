"""Whether clients with similar labels weigh more in each other's models (claim S8 on FedScrap)."""

from typing import TYPE_CHECKING

import numpy as np

from tasks.server.mixing_record import read_mixing

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.round_state import RoundState
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset

METRIC = "mixing/label_similarity"
LEAST = 3  # clients: with two there is one other each, and nothing to rank


def label_similarity(counts: np.ndarray) -> np.ndarray:
    """Return the cosines between clients' label counts [K, C], float64 [K, K]; 0 with a client without labels."""
    lengths = np.linalg.norm(counts, axis=1, keepdims=True)
    shares = counts / np.where(lengths > 0, lengths, 1.0)
    found: np.ndarray = shares @ shares.T
    return found


def rank_correlation(weights: np.ndarray, similarity: np.ndarray) -> float:
    """Return Spearman's correlation over pairs of different clients; NaN where all weights or all cosines are equal.

    Each client's weights are compared as shares of what it gives to others, so that its own weight does not count.

    Args:
        weights: [K, K], row i: the weights in client i's model.
        similarity: [K, K].
    """
    from scipy.stats import spearmanr

    others = ~np.eye(len(weights), dtype=bool)
    given = np.where(others, weights, 0.0).sum(axis=1, keepdims=True)
    shares = (weights / np.where(given > 0, given, 1.0))[others].round(12)
    cosines = similarity[others].round(12)
    if np.ptp(shares) == 0 or np.ptp(cosines) == 0:
        return float("nan")
    return float(spearmanr(shares, cosines).statistic)


def mixing_metrics(
    context: "RunContext", state: "RoundState", dataset: "Dataset", clients: "Clients"
) -> dict[str, float]:
    """Return ``mixing/label_similarity``: the mean over layers, of clients that the round's mixing made models for.

    Empty if the round mixes no models for single clients, of fewer than three, or if no correlation is defined.
    """
    mixing = read_mixing(context.open_store(), state)
    if mixing is None or len(mixing.models) < LEAST:
        return {}
    ids = [client for client in mixing.models if client in mixing.clients]
    rows = [mixing.models.index(client) for client in ids]
    columns = [mixing.clients.index(client) for client in ids]
    counts = np.array([dataset.targets[clients.indices[client]].sum(axis=0, dtype=np.int64) for client in ids])
    similarity = label_similarity(counts)
    found = [rank_correlation(layer[np.ix_(rows, columns)], similarity) for layer in mixing.layers.values()]
    defined = [value for value in found if np.isfinite(value)]
    return {METRIC: float(np.mean(defined))} if defined else {}
