"""The kind of problem that a data set poses, and what follows from it: scores, loss, predicted labels, objective.

``multi_label``: an image has any number of labels, each with a probability of its own (sigmoid). ``single_label``: an
image has exactly one, and the probabilities of all classes sum to 1 (softmax). Targets are 0/1 [N, C] for both. The
metrics of each kind are in ``tasks/evaluation``.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import numpy as np

from tasks.core.problem_kind import KINDS, Kind

Activation = Literal["sigmoid", "softmax"]  # as in models.layers.probabilities


class Problem(Protocol):
    """What a kind of problem decides.

    Attributes:
        kind: Its name.
        activation: Turns logits into probabilities.
        objective: The objective of networks without one of their own.
        primary_metric: Chooses the best round and heads every table; higher is better.
        unit: What the loss is averaged over.
    """

    kind: Kind
    activation: Activation
    objective: str
    primary_metric: str
    unit: str

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return probabilities [N, C], float64, of logits [N, C]."""
        ...

    def loss(self, logits: np.ndarray, targets: np.ndarray) -> float:
        """Return the mean loss of logits [N, C] for 0/1 targets [N, C]; NaN without images."""
        ...

    def predicted(self, probabilities: np.ndarray, thresholds: float | np.ndarray) -> np.ndarray:
        """Return the predicted labels, bool [N, C]; ``thresholds`` is one number or one per class [C]."""
        ...

    def rule(self, threshold: float) -> str:
        """Say in words which labels are predicted."""
        ...


class MultiLabel(Problem):
    """Sigmoid, binary cross entropy per image and label, labels from a threshold on."""

    kind = "multi_label"
    activation = "sigmoid"
    objective = "bce"
    primary_metric = "macro_ap"
    unit = "image and label"

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the sigmoid in float64, of any shape."""
        with np.errstate(over="ignore"):  # exp of a large number is infinite, and the quotient 0
            return np.asarray(1.0 / (1.0 + np.exp(-logits.astype(np.float64))))

    def loss(self, logits: np.ndarray, targets: np.ndarray) -> float:
        """Return the mean binary cross entropy over images and labels."""
        return float(np.mean(np.logaddexp(0.0, logits) - logits * targets)) if targets.size else float("nan")

    def predicted(self, probabilities: np.ndarray, thresholds: float | np.ndarray) -> np.ndarray:
        """Return the labels whose probability is at or above the threshold, any number per image."""
        return np.asarray(probabilities >= thresholds)

    def rule(self, threshold: float) -> str:
        """Say in words which labels are predicted."""
        return f"from {threshold:g} a label is predicted"


class SingleLabel(Problem):
    """Softmax, cross entropy per image, the class of the highest probability."""

    kind = "single_label"
    activation = "softmax"
    objective = "ce"
    primary_metric = "accuracy"
    unit = "image"

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the softmax over the classes in float64."""
        from scipy.special import softmax

        return np.asarray(softmax(logits.astype(np.float64), axis=-1))

    def loss(self, logits: np.ndarray, targets: np.ndarray) -> float:
        """Return the mean cross entropy over images, float64."""
        from scipy.special import log_softmax

        if not targets.size:
            return float("nan")
        return float(-(log_softmax(logits.astype(np.float64), axis=-1) * targets).sum(axis=-1).mean())

    def predicted(self, probabilities: np.ndarray, thresholds: float | np.ndarray) -> np.ndarray:
        """Return the class of the highest probability, the first of equals; thresholds have no part in it."""
        del thresholds
        found = np.zeros(probabilities.shape, bool)
        found[np.arange(len(found)), probabilities.argmax(axis=1)] = True
        return found

    def rule(self, threshold: float) -> str:
        """Say in words which label is predicted; the threshold has no part in it."""
        del threshold
        return "they sum to 1, and the highest one is the predicted label"


_PROBLEMS: dict[Kind, Problem] = {"multi_label": MultiLabel(), "single_label": SingleLabel()}


def load_problem(kind: str) -> Problem:
    """Return the problem of a kind.

    Raises:
        ValueError: If there is no such kind.
    """
    for known, problem in _PROBLEMS.items():
        if known == kind:
            return problem
    raise ValueError(f"no such kind of problem: {kind!r}; known: {', '.join(KINDS)}")


def primary_metric(metrics: Mapping[str, float] | Iterable[str]) -> str:
    """Return the metric that fits a round's metrics: ``macro_ap`` or, where it does not occur, ``accuracy``.

    Without the protocol global there are only distributions over clients (``local/accuracy/mean``). Rounds of earlier
    releases have both metrics where each image has one label; they were chosen by ``macro_ap``.
    """
    parts = {part.removeprefix("val_") for name in metrics for part in name.split("/")}
    kinds = [problem.primary_metric for problem in _PROBLEMS.values()]
    return next((name for name in kinds if name in parts), kinds[0])
