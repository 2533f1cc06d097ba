"""One model and the metrics of its logits: on any rows of the data set, and on the pooled test and validation sets."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.core.randomness import numpy_generator
from tasks.evaluation.bootstrap import INTERVAL
from tasks.evaluation.chance import CHANCE
from tasks.evaluation.metric_sets import class_rows, intervals, metric_set, site_rows
from tasks.evaluation.metrics import combine
from tasks.evaluation.thresholds import THRESHOLD, tuned_thresholds

if TYPE_CHECKING:
    from torch import nn

    from tasks.core.context import RunContext
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset


class Evaluator:
    """Evaluates one model; the logits of an image without feature skew are computed once.

    Args:
        context: The run.
        model: The network with its weights.
        dataset: The images.
        clients: The clients and their images.
    """

    def __init__(self, context: "RunContext", model: "nn.Module", dataset: "Dataset", clients: "Clients") -> None:
        self.context, self.model, self.dataset, self.clients = context, model, dataset, clients
        self.problem, self.set = context.problem, metric_set(context.kind)
        self.logits = np.zeros(dataset.targets.shape, np.float32)
        self.known = np.zeros(len(dataset.targets), bool)

    def logits_of(self, rows: np.ndarray, client: str | None = None) -> np.ndarray:
        """Return the logits [n, C] of rows, which may repeat, with the feature skew of a client if one is given."""
        from tasks.client.feature_skew import client_images

        if client is not None and self.clients.features(client) is not None:
            single, places = np.unique(rows, return_inverse=True)
            return self._predict(client_images(self.dataset, self.clients, client, single))[places]
        new = np.unique(rows[~self.known[rows]])
        if len(new):
            self.logits[new], self.known[new] = self._predict(self.dataset.lazy_images(new)), True
        return self.logits[rows]

    def know(self, rows: np.ndarray, logits: np.ndarray) -> None:
        """Take over logits [n, C] of rows that were computed elsewhere."""
        self.logits[rows], self.known[rows] = logits, True

    def _predict(self, images: Any) -> np.ndarray:
        from tasks.core.network import predict_logits

        return predict_logits(self.context, self.model, images)

    @cached_property
    def thresholds(self) -> np.ndarray | None:
        """One threshold per class [C], tuned on the validation images; ``None``: that of the settings for all."""
        if self.context.evaluation.thresholds == "fixed":
            return None
        logits, rows, _ = self._pooled_logits(self.dataset.indices("val"))
        scores = self.problem.probabilities(logits)
        return tuned_thresholds(scores, self.dataset.targets[rows], self.context.evaluation.threshold)

    def metrics(
        self, logits: np.ndarray, targets: np.ndarray, thresholds: np.ndarray | None = None
    ) -> dict[str, float]:
        """Return the metrics and the loss of logits [n, C] for targets [n, C]."""
        scores = self.problem.probabilities(logits)
        found = self.set.compute(scores, targets, self.context.evaluation, thresholds)
        return combine(found, {"loss": self.problem.loss(logits, targets)})

    def row(self, rows: np.ndarray, client: str) -> dict[str, float]:
        """Return the metrics of a client's row on these rows, with its feature skew; empty without rows."""
        if len(rows) == 0:
            return {}
        metrics = self.metrics(self.logits_of(rows, client), self.dataset.targets[rows], self.thresholds)
        return {key: metrics[key] for key in self.set.client}

    def pooled(self) -> dict[str, Any]:
        """Evaluate on the pooled test set and on the validation images.

        With ``partition.features.test`` clients there is a copy of each image for every client, and no interval:
        copies of an image are no independent images.

        Returns:
            ``metrics`` of test and (``val_``) validation images, with chance levels (``chance/<metric>``) and
            intervals (``interval/<metric>/low`` and ``/high``) of the test metrics; ``per_class`` and ``per_site`` of
            the test set; ``confusion``: its images by class and predicted class, for single labels.
        """
        out: dict[str, Any] = {"metrics": {}}
        for split, prefix in (("val", "val_"), ("test", "")):
            rows = self.dataset.indices(split)
            if len(rows) == 0:
                continue
            logits, rows, copied = self._pooled_logits(rows)
            targets = self.dataset.targets[rows]
            tuned = self.thresholds if split == "test" else None  # what was tuned on images says little about them
            metrics = {prefix + name: value for name, value in self.metrics(logits, targets, tuned).items()}
            if split == "test":
                scores, settings = self.problem.probabilities(logits), self.context.evaluation
                out["per_class"] = class_rows(self.set, self.context.classes, scores, targets, settings, tuned)
                if tuned is not None:
                    for row, threshold in zip(out["per_class"].values(), tuned.tolist(), strict=True):
                        row[THRESHOLD] = threshold
                out["per_site"] = site_rows(self.set, self.dataset.sites[rows], scores, targets, settings, tuned)
                out["confusion"] = self.set.confusion(scores, targets)
                metrics = combine(metrics, self._chance_and_intervals(scores, targets, copied))
            out["metrics"] = combine(out["metrics"], metrics)
        return out

    def _pooled_logits(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return logits, the row of each of them, and whether there are several copies of an image."""
        from tasks.client.feature_skew import pooled_copies

        copies = pooled_copies(self.dataset, self.clients, rows)
        if not copies:
            return self.logits_of(rows), rows, False
        return np.concatenate([self._predict(images) for images in copies]), np.tile(rows, len(copies)), True

    def _chance_and_intervals(self, scores: np.ndarray, targets: np.ndarray, copied: bool) -> dict[str, float]:
        settings = self.context.evaluation
        train = self.dataset.targets[(self.dataset.splits == "train") & self.dataset.annotated]
        levels = self.set.chance_levels(train, targets, settings) if len(train) else {}
        rng = numpy_generator(0, "resampled test images")  # the same resamples in every run, so that runs compare
        bounds = {} if copied else intervals(self.set, scores, targets, settings, rng, self.thresholds)
        return {CHANCE + key: value for key, value in levels.items()} | {
            INTERVAL + key: value for key, value in bounds.items()
        }
