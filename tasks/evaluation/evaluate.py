"""Evaluate a model on the pooled test set and on the clients' local test sets (docs/evaluation.md).

Personal models are evaluated on the whole pooled test set each; their metrics are the only ones averaged over clients.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.core.former_names import PERSONAL
from tasks.core.randomness import numpy_generator
from tasks.data.partition.participation import TRAINED_ON, site_counts, site_means
from tasks.data.run_data import load_run_data
from tasks.evaluation.bootstrap import INTERVAL
from tasks.evaluation.chance import CHANCE
from tasks.evaluation.metric_sets import client_distribution, metric_set, site_rows, weighted_mean
from tasks.evaluation.metrics import combine
from tasks.evaluation.thresholds import THRESHOLD, tuned_thresholds

if TYPE_CHECKING:
    from torch import nn

    from tasks.core.context import RunContext
    from tasks.core.round_state import RoundState
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset


class Evaluator:
    """Evaluates one model; the logits of an image without feature skew are computed once.

    Args:
        context: The run.
        model: The network with its weights.
        dataset: The images.
        clients: The clients and their local test sets.
    """

    def __init__(self, context: "RunContext", model: "nn.Module", dataset: "Dataset", clients: "Clients") -> None:
        self.context, self.model, self.dataset, self.clients = context, model, dataset, clients
        self.problem, self.set = context.problem, metric_set(context.kind)
        self.logits = np.zeros(dataset.targets.shape, np.float32)
        self.known = np.zeros(len(dataset.targets), bool)

    def _logits(self, rows: np.ndarray) -> np.ndarray:
        from tasks.core.network import predict_logits

        new = np.unique(rows[~self.known[rows]])
        if len(new):
            images = self.dataset.lazy_images(new)
            self.logits[new], self.known[new] = predict_logits(self.context, self.model, images), True
        return self.logits[rows]

    def _pooled_logits(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return logits, the row of each of them, and whether there are several copies of an image."""
        from tasks.client.feature_skew import pooled_copies
        from tasks.core.network import predict_logits

        copies = pooled_copies(self.dataset, self.clients, rows)
        if not copies:
            return self._logits(rows), rows, False
        logits = [predict_logits(self.context, self.model, images) for images in copies]
        return np.concatenate(logits), np.tile(rows, len(copies)), True

    @cached_property
    def thresholds(self) -> np.ndarray | None:
        """One threshold per class [C], tuned on the validation images; ``None``: that of the settings for all."""
        if self.context.evaluation.thresholds == "fixed":
            return None
        logits, rows, _ = self._pooled_logits(self.dataset.indices("val"))
        scores = self.problem.probabilities(logits)
        return tuned_thresholds(scores, self.dataset.targets[rows], self.context.evaluation.threshold)

    def _metrics(
        self, logits: np.ndarray, targets: np.ndarray, thresholds: np.ndarray | None = None
    ) -> dict[str, float]:
        scores = self.problem.probabilities(logits)
        metrics = self.set.compute(scores, targets, self.context.evaluation, thresholds)
        return combine(metrics, {"loss": self.problem.loss(logits, targets)})

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
            metrics = {prefix + name: value for name, value in self._metrics(logits, targets, tuned).items()}
            if split == "test":
                scores, settings = self.problem.probabilities(logits), self.context.evaluation
                out["per_class"] = self.set.class_rows(self.context.classes, scores, targets, settings, tuned)
                if tuned is not None:
                    for row, threshold in zip(out["per_class"].values(), tuned.tolist(), strict=True):
                        row[THRESHOLD] = threshold
                out["per_site"] = site_rows(self.set, self.dataset.sites[rows], scores, targets, settings, tuned)
                out["confusion"] = self.set.confusion(scores, targets)
                metrics = combine(metrics, self._chance_and_intervals(scores, targets, copied))
            out["metrics"] = combine(out["metrics"], metrics)
        return out

    def _chance_and_intervals(self, scores: np.ndarray, targets: np.ndarray, copied: bool) -> dict[str, float]:
        settings, train = self.context.evaluation, self.dataset.targets[self.dataset.indices("train")]
        levels = self.set.chance_levels(train, targets, settings) if len(train) else {}
        rng = numpy_generator(0, "resampled test images")  # the same resamples in every run, so that runs compare
        bounds = {} if copied else self.set.intervals(scores, targets, settings, rng, self.thresholds)
        return {CHANCE + key: value for key, value in levels.items()} | {
            INTERVAL + key: value for key, value in bounds.items()
        }

    def local(self, client: str) -> dict[str, float]:
        """Return a client's metrics on its local test set, with its feature skew; empty if it has none."""
        from tasks.client.feature_skew import client_images
        from tasks.core.network import predict_logits

        rows = self.clients.rows(client, "test")
        if len(rows) == 0:
            return {}
        if self.clients.features(client) is None:
            logits = self._logits(rows)
        else:
            images = client_images(self.dataset, self.clients, client, rows)
            logits = predict_logits(self.context, self.model, images)
        metrics = self._metrics(logits, self.dataset.targets[rows], self.thresholds)
        return {key: metrics[key] for key in self.set.client}


def evaluate_model(
    context: "RunContext", state: "RoundState", sizes: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Evaluate a round's models on the pooled test and validation images and on the local test sets.

    Args:
        context: The run.
        state: Its models. Where clients have their own, each is evaluated on the pooled images, and the global
            metrics are the mean over them.
        sizes: Client -> weight in that mean; by default the number of its training images.

    Returns:
        ``metrics``: of the test images; with prefix ``val_`` of the validation images; ``client/`` for distributions
        over clients, ``chance/`` for chance levels, ``interval/`` for intervals, ``site_mean/`` for means over sites.
        ``per_class`` and ``per_site``: of the test set; ``train_images`` is the number of the site's images that
        clients train on. ``per_client``: client -> its metrics on its local test set, if it has one, and with prefix
        ``personal_`` those of its own model on the pooled test set. ``confusion``: images of the test set by class
        and predicted class, for single labels and one global model.

    Raises:
        UserError: The weights do not fit the network.
    """
    from tasks.core.network import build_network

    dataset, clients = load_run_data(context)
    personal = state.personalised
    assert set(personal) <= set(clients.ids), f"models of unknown clients: {personal}"
    others = [client for client in clients.ids if client not in personal]
    per_client, out = {}, {}
    if others or not personal:
        model = build_network(context, context.open_store(), state.evaluated_model or state.global_model)
        evaluator = Evaluator(context, model, dataset, clients)
        per_client = {client: evaluator.local(client) for client in others}
        out = {} if personal else evaluator.pooled()
    if personal:
        weights = {client: len(clients.indices[client]) for client in personal} if sizes is None else sizes
        out, rows = _evaluate_personal(context, state, dataset, clients, [weights[client] for client in personal])
        per_client |= rows
    out["per_client"] = {client: per_client[client] for client in clients.ids if per_client[client]}
    metrics = [out["metrics"], client_distribution(out["per_client"], metric_set(context.kind).distribution)]
    if "per_site" in out:
        trained = site_counts(dataset, clients)
        for site, row in out["per_site"].items():
            row[TRAINED_ON] = float(trained[site])
        metrics.append(site_means(out["per_site"], context.problem.primary_metric))
    out["metrics"] = combine(*metrics)
    return out


def _evaluate_personal(
    context: "RunContext", state: "RoundState", dataset: "Dataset", clients: "Clients", weights: Sequence[float]
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Average the own models' metrics on the pooled images by ``weights``; return also the rows of the clients."""
    from tasks.core.network import build_network, with_personal

    store, found, per_client = context.open_store(), [], {}
    for client in state.personalised:
        ref, overlays = state.own_model(client)
        model = build_network(context, store, ref)
        for overlay in overlays:
            with_personal(model, store, overlay)
        evaluator = Evaluator(context, model, dataset, clients)
        pooled = evaluator.pooled()
        on_pooled = {PERSONAL + key: pooled["metrics"][key] for key in evaluator.set.client if key in pooled["metrics"]}
        per_client[client] = combine(evaluator.local(client), on_pooled)
        found.append(pooled)
    for pooled in found:  # the mean of bounds is no bound of the mean
        pooled["metrics"] = {key: value for key, value in pooled["metrics"].items() if not key.startswith(INTERVAL)}
    out: dict[str, Any] = {"metrics": weighted_mean([pooled["metrics"] for pooled in found], weights)}
    for table in ("per_class", "per_site"):
        rows = [pooled[table] for pooled in found if table in pooled]
        out |= {table: {name: weighted_mean([row[name] for row in rows], weights) for name in rows[0]}} if rows else {}
    return out, per_client
