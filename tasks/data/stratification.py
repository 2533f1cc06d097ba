"""Iterative stratification: divides units so that every label has nearly the same share in each split."""

import numpy as np


def iterative_stratification(labels: np.ndarray, shares: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Return the split of each unit, int64 [n].

    The algorithm of Sechidis, Tsoumakas and Vlahavas (2011): the label with the fewest units left comes first, and each
    of its units goes to the split that lacks most of this label, else most units, else at random. Units without a label
    come last. The draws are those of ``iterstrat.ml_stratifiers.IterativeStratification``, whose import of scikit-learn
    takes longer than the split of most data sets.

    Args:
        labels: bool [n, C].
        shares: [F], they add to 1.
        rng: Breaks ties.
    """
    lacking = (shares * len(labels)).tolist()  # units of each split
    lacking_of = np.outer(labels.sum(axis=0), shares).tolist()  # the same for each label
    labels_of = [np.flatnonzero(row).tolist() for row in labels]
    result = np.full(len(labels), -1, dtype=np.int64)

    def draw(candidates: list[int]) -> int:
        return candidates[rng.choice(len(candidates)) if len(candidates) > 1 else 0]

    def assign(unit: int, candidates: list[int]) -> None:
        split = draw(_largest(lacking, candidates))
        result[unit] = split
        lacking[split] -= 1
        for label in labels_of[unit]:
            lacking_of[label][split] -= 1

    splits = list(range(len(lacking)))
    while (left := labels[result < 0].sum(axis=0)).any():
        label = draw(np.flatnonzero(left == left[left > 0].min()).tolist())
        for unit in np.flatnonzero(labels[:, label] & (result < 0)).tolist():
            assign(unit, _largest(lacking_of[label], splits))
    for unit in np.flatnonzero(result < 0).tolist():
        assign(unit, splits)
    return result


def _largest(values: list[float], candidates: list[int]) -> list[int]:
    """Return the candidates of the largest value."""
    most = max(values[number] for number in candidates)
    return [number for number in candidates if values[number] == most]
