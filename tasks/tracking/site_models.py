"""Personal models as MLflow models, one per site. They have the same form as a run's last and best model."""

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.names import metric_part
from tasks.tracking.logged_models import NoExport, add_model, link, linked_models, ready_models
from tasks.tracking.mlflow_client import make_client, user_errors
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.tags import MODEL_ERROR_TAG, ROUND_TAG, ROUNDS_TAG, RUN_TAG, SITE_TAG, TAG_LENGTH
from tasks.tracking.uri import resolve_uri

if TYPE_CHECKING:
    from tasks.tracking.logged_models import ModuleFactory

log = logging.getLogger(__name__)

METRICS = "site_model"  # first part of the names of their metrics
ERROR_TAG = f"{MODEL_ERROR_TAG}.sites"
_DIGITS = 10


@dataclass(frozen=True)
class SiteModel:
    """The model of one site.

    Attributes:
        site: The site (client).
        round: The round that it comes from.
        factory: Returns the network, an example of its input and its metadata.
        metrics: ``<protocol>/<metric>`` of this model.
    """

    site: str
    round: int
    factory: "ModuleFactory"
    metrics: Mapping[str, float] = field(default_factory=dict)


def model_name(site: str) -> str:
    """Return the name of a site's model: ``site-<site>``; what MLflow refuses in it is replaced, and a digest added."""
    part = metric_part(site)
    if "." not in part:
        return f"site-{part}"
    digest = hashlib.sha256(site.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"site-{part.replace('.', '_')}{f'-{digest}' if part == site else ''}"


def log_site_models(
    settings: TrackingSettings,
    runs_root: Path,
    mlflow_run_id: str,
    models: Iterable[SiteModel],
    notify: Callable[[str], None] = lambda site: None,
) -> dict[str, str]:
    """Log the models of sites that MLflow does not have of their rounds yet.

    Args:
        settings: The tracking settings.
        runs_root: The folder of runs.
        mlflow_run_id: The run's id in MLflow.
        models: The models, made one after the other.
        notify: Called with a site when its model is in MLflow.

    Returns:
        Site -> ``models:/<id>``. If the networks cannot be exported they are left out, and the tag
        ``fedscene.model_error.sites`` has the reason.

    Raises:
        UserError: If the store fails.
    """
    uri = resolve_uri(settings, runs_root)
    done: dict[str, str] = {}
    with user_errors(uri):
        client = make_client(uri)
        run = client.get_run(mlflow_run_id)
        ready, linked, error_tag = ready_models(client, run), linked_models(run), run.data.tags.get(ERROR_TAG)
        for entry in models:
            model = ready.get((entry.round, entry.site))
            if model is None:
                tags = {ROUND_TAG: str(entry.round), SITE_TAG: entry.site}
                metrics = {f"{METRICS}/{key}": value for key, value in entry.metrics.items() if math.isfinite(value)}
                try:
                    model = add_model(client, run, model_name(entry.site), tags, entry.factory, metrics)
                except NoExport as error:  # all sites have the same network
                    log.warning("MLflow: the sites' networks cannot be exported: %s", error)
                    client.set_tag(mlflow_run_id, ERROR_TAG, f"round {entry.round}: {error}"[:TAG_LENGTH])
                    return done
            if model.model_id not in linked:
                link(client, mlflow_run_id, model.model_id, entry.round)
            done[entry.site] = str(model.model_uri)
            notify(entry.site)
        if error_tag is not None and done:
            client.delete_tag(mlflow_run_id, ERROR_TAG)
    return done


def find_logged_run(settings: TrackingSettings, runs_root: Path, run_id: str) -> str | None:
    """Return the id in MLflow of one of our runs, with all its rounds; ``None`` if MLflow does not have it.

    Raises:
        UserError: If the store fails.
    """
    uri = resolve_uri(settings, runs_root)
    with user_errors(uri, None):
        try:
            client = make_client(uri)
        except FileNotFoundError:  # the SQLite file was deleted, or is on another machine
            return None
        experiment = client.get_experiment_by_name(settings.experiment)
        if experiment is None:
            return None
        runs = client.search_runs([experiment.experiment_id], f"tags.`{RUN_TAG}` = '{run_id}'", max_results=1000)
        whole = [run for run in runs if ROUNDS_TAG not in run.data.tags]
        return str(whole[0].info.run_id) if whole else None
