"""Scores a model on the pooled test set and on every client's own test images (specification section 5).

The one mean over clients is that of personal models, each scored on the whole pooled test set (section 4.7).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.core.randomness import numpy_generator
from tasks.data.partition.participation import TRAINED_ON, site_counts, site_means
from tasks.data.run_data import load_run_data
from tasks.evaluation.bootstrap import INTERVAL, intervals
from tasks.evaluation.chance import CHANCE, chance_levels
from tasks.evaluation.metrics import (
    OF_ALL,
    class_rows,
    client_distribution,
    multilabel_metrics,
    probabilities,
    site_rows,
    weighted_mean,
)

if TYPE_CHECKING:
    from torch import nn

    from tasks.core.context import RunContext
    from tasks.core.records import ModelRef
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset, LazyImages

CLIENT_METRICS = ("macro_ap", "micro_ap", "cf1", "mean_f1", "micro_f1", "loss", "images", "classes_used")


class Scored:
    """What one model says of a data set; a image that no client's camera changes is scored once.

    Args:
        context: The run.
        model: The network with its weights.
        dataset: The images.
    """

    def __init__(self, context: "RunContext", model: "nn.Module", dataset: "Dataset") -> None:
        self.context, self.model, self.dataset = context, model, dataset
        self.logits = np.zeros(dataset.targets.shape, np.float32)
        self.known = np.zeros(len(dataset.targets), bool)

    def _of(self, rows: np.ndarray) -> np.ndarray:
        new = np.unique(rows[~self.known[rows]])
        if len(new):
            self.logits[new], self.known[new] = self._score(self.dataset.lazy_images(new)), True
        return self.logits[rows]

    def _score(self, images: "LazyImages") -> np.ndarray:
        from tasks.core.network import predict_logits

        return predict_logits(self.context, self.model, images)

    def _metrics(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        from tasks.core.network import binary_cross_entropy

        metrics = multilabel_metrics(probabilities(logits), targets, self.context.evaluation)
        return metrics | {"loss": binary_cross_entropy(logits, targets)}

    def pooled(self) -> dict[str, dict[str, Any]]:
        """``metrics`` of the pooled test and (``val_``) validation images, ``per_class`` and ``per_site`` of test.

        Beside the test metrics stand their chance levels (``chance/<metric>``) and intervals (``interval/<metric>/low``
        and ``/high``).
        """
        out: dict[str, dict[str, Any]] = {"metrics": {}}
        for split, prefix in (("val", "val_"), ("test", "")):
            rows = self.dataset.indices(split)
            if len(rows) == 0:
                continue
            logits, targets = self._of(rows), self.dataset.targets[rows]
            out["metrics"] |= {prefix + name: value for name, value in self._metrics(logits, targets).items()}
            if split == "test":
                scores, settings = probabilities(logits), self.context.evaluation
                out["per_class"] = class_rows(self.context.classes, scores, targets, settings)
                out["per_site"] = site_rows(self.dataset.sites[rows], scores, targets, settings)
                out["metrics"] |= self._beside(scores, targets, single="accuracy" in out["metrics"])
        return out

    def _beside(self, scores: np.ndarray, targets: np.ndarray, single: bool) -> dict[str, float]:
        """What the test metrics are to be read against: their chance levels and their intervals."""
        settings, train = self.context.evaluation, self.dataset.targets[self.dataset.indices("train")]
        levels = chance_levels(train, targets, settings, single) if len(train) else {}
        rng = numpy_generator(0, "resampled test images")  # the same resamples in every run, so that runs compare
        bounds = intervals(scores, targets, settings, rng)
        return {CHANCE + key: value for key, value in levels.items()} | {
            INTERVAL + key: value for key, value in bounds.items()
        }

    def own(self, clients: "Clients", client: str) -> dict[str, float]:
        """The metrics on the client's own test images, as its camera takes them; empty if it has none."""
        from tasks.client.feature_skew import client_images

        rows = clients.rows(client, "test")
        if len(rows) == 0:
            return {}
        changed = clients.features(client) is not None
        logits = self._score(client_images(self.dataset, clients, client, rows)) if changed else self._of(rows)
        metrics = self._metrics(logits, self.dataset.targets[rows])
        return {key: metrics[key] for key in CLIENT_METRICS}


def evaluate_model(
    context: "RunContext",
    ref: "ModelRef",
    personal_states: "Mapping[str, ModelRef] | None" = None,
    sizes: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Scores one model, or the clients' personal ones, on the pooled test and validation images and on clients' own.

    Args:
        context: The run.
        ref: The global model's weights.
        personal_states: Client -> its own tensors (``model/<name>``), which replace the global model's. Each such model
            is evaluated on the pooled images, and the global figures are the mean of these.
        sizes: Client -> weight in that mean; by default the number of its training images.

    Returns:
        ``metrics`` (test; the validation ones begin with ``val_``, the distributions over clients with ``client/``,
        chance levels with ``chance/``, intervals with ``interval/``, means over sites with ``site_mean/``),
        ``per_class`` and ``per_site`` of the test set (``train_images``: how many of the site's images clients train
        on), and ``per_client``: client -> ``CLIENT_METRICS`` on its own test
        images where it has any, and with an overlay the same on the pooled ones, named ``pooled_...``.

    Raises:
        UserError: If weights do not fit the network.
    """
    from tasks.core.network import build_network

    dataset, clients = load_run_data(context)
    model, personal = build_network(context, context.open_store(), ref), sorted(personal_states or {})
    assert set(personal) <= set(clients.ids), f"personal_states of unknown clients: {personal}"
    scored = Scored(context, model, dataset)
    per_client = {client: scored.own(clients, client) for client in clients.ids if client not in personal}
    if personal_states:
        weights = {client: len(clients.indices[client]) for client in personal} if sizes is None else sizes
        out, rows = _personal(
            context, model, dataset, clients, personal_states, [weights[client] for client in personal]
        )
        per_client |= rows
    else:
        out = scored.pooled()
    out["per_client"] = {client: per_client[client] for client in clients.ids if per_client[client]}
    out["metrics"] |= client_distribution(out["per_client"])
    if "per_site" in out:
        trained = site_counts(dataset, clients)
        for site, row in out["per_site"].items():
            row[TRAINED_ON] = float(trained[site])
        out["metrics"] |= site_means(out["per_site"])
    return out


def _personal(
    context: "RunContext",
    model: "nn.Module",
    dataset: "Dataset",
    clients: "Clients",
    personal_states: "Mapping[str, ModelRef]",
    weights: Sequence[float],
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """The weighted mean of the personal models' figures (section 4.7), and each client's own; ``weights`` by client."""
    from tasks.core.network import with_personal

    store, base = context.open_store(), {name: value.clone() for name, value in model.state_dict().items()}
    found, per_client = [], {}
    for client in sorted(personal_states):
        model.load_state_dict(base)  # personal_states need not hold the same tensors
        with_personal(model, store, personal_states[client])
        scored = Scored(context, model, dataset)
        pooled = scored.pooled()
        of_all = {OF_ALL + key: pooled["metrics"][key] for key in CLIENT_METRICS if key in pooled["metrics"]}
        per_client[client] = scored.own(clients, client) | of_all
        found.append(pooled)
    for pooled in found:  # the mean of bounds is no bound of the mean
        pooled["metrics"] = {key: value for key, value in pooled["metrics"].items() if not key.startswith(INTERVAL)}
    out: dict[str, Any] = {"metrics": weighted_mean([pooled["metrics"] for pooled in found], weights)}
    for table in ("per_class", "per_site"):
        rows = [pooled[table] for pooled in found if table in pooled]
        out |= {table: {name: weighted_mean([row[name] for row in rows], weights) for name in rows[0]}} if rows else {}
    return out, per_client
