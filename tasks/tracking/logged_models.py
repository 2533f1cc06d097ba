"""Networks as MLflow models: each round at most once, however often a finished run is resumed."""

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.tracking.tags import MODEL_ERROR_TAG, MODEL_TAG, ROUND_TAG, SITE_TAG, TAG_LENGTH

if TYPE_CHECKING:
    import numpy as np
    import torch
    from mlflow.entities import LoggedModel, Run
    from mlflow.models import Model
    from mlflow.tracking import MlflowClient

    # Returns a network in eval mode, an example of its input [N,3,S,S], and metadata (labels, size)
    ModuleFactory = Callable[[], tuple[torch.nn.Module, np.ndarray, Mapping[str, Any]]]

log = logging.getLogger(__name__)


def log_models(client: "MlflowClient", run: "Run", models: "Mapping[str, tuple[int, ModuleFactory]]") -> dict[str, str]:
    """Log networks that are not logged yet, and name each in the run's tags.

    A model that a killed process left incomplete is deleted and logged again.

    Args:
        client: MLflow's client.
        run: The run as it is now.
        models: Name (``last``, ``best``) -> (round, factory).

    Returns:
        Name -> ``models:/<id>``; names whose network cannot be exported are left out, the tag
        ``fedscene.model_error.<name>`` has the reason.
    """
    run_id, tags = run.info.run_id, run.data.tags
    ready = {number: model for (number, site), model in ready_models(client, run).items() if site is None}
    linked = linked_models(run)
    failed: dict[int, str] = {}
    done: dict[str, str] = {}
    for name, (number, factory) in models.items():
        error_tag = f"{MODEL_ERROR_TAG}.{name}"
        why = failed.get(number) or tags.get(error_tag, "")
        if number not in ready and not why.startswith(f"round {number}: "):
            try:
                ready[number] = add_model(client, run, name, {ROUND_TAG: str(number)}, factory)
                why = ""
            except NoExport as error:
                log.warning("MLflow: the network of round %d cannot be exported: %s", number, error)
                why = failed[number] = f"round {number}: {error}"[:TAG_LENGTH]
        if number not in ready:
            if tags.get(error_tag) != why:
                client.set_tag(run_id, error_tag, why)
            continue
        model = ready[number]
        if model.model_id not in linked:
            link(client, run_id, model.model_id, number)
            linked.add(model.model_id)
        done[name] = str(model.model_uri)
        if tags.get(f"{MODEL_TAG}.{name}") != done[name]:
            client.set_tag(run_id, f"{MODEL_TAG}.{name}", done[name])
        if error_tag in tags:
            client.delete_tag(run_id, error_tag)
    return done


def ready_models(client: "MlflowClient", run: "Run") -> "dict[tuple[int, str | None], LoggedModel]":
    """Return (round, site) -> its complete model, site ``None`` for a shared one; delete incomplete models."""
    ready: dict[tuple[int, str | None], LoggedModel] = {}
    token: str | None = None
    while True:
        page = client.search_logged_models(
            [run.info.experiment_id], f"source_run_id = '{run.info.run_id}'", page_token=token
        )
        for model in page:
            if str(model.status) in ("READY", "LoggedModelStatus.READY") and model.tags.get(ROUND_TAG, "").isdigit():
                key = int(model.tags[ROUND_TAG]), model.tags.get(SITE_TAG)
                if key not in ready or model.model_uri in run.data.tags.values():
                    ready[key] = model
            elif ROUND_TAG in model.tags:
                client.delete_logged_model(model.model_id)
        token = page.token
        if not token:
            return ready


def linked_models(run: "Run") -> set[str]:
    """Return the ids of the models that the run's page names."""
    return {output.model_id for output in run.outputs.model_outputs} if run.outputs else set()


class NoExport(Exception):  # noqa: N818 - the callers say what it means for their run
    """A network that cannot be exported."""


def add_model(
    client: "MlflowClient",
    run: "Run",
    name: str,
    tags: Mapping[str, str],
    factory: "ModuleFactory",
    metrics: Mapping[str, float] | None = None,
) -> "LoggedModel":
    """Export and log one network.

    Args:
        client: MLflow's client.
        run: The run that made the network.
        name: Name of the model.
        tags: Its tags, with the round.
        factory: Returns the network, an example of its input and its metadata.
        metrics: Finite numbers that belong to the model. MLflow shows them in its row, and lists them in the run too.

    Raises:
        NoExport: If it cannot be exported; nothing is left in MLflow.
    """
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    run_id, step = run.info.run_id, int(tags[ROUND_TAG])
    module, example, metadata = factory()
    model = client.create_logged_model(run.info.experiment_id, name=name, source_run_id=run_id, tags=dict(tags))
    with tempfile.TemporaryDirectory(prefix="fedscene-") as folder:
        model_file = Model(model_id=model.model_id, run_id=run_id, metadata=dict(metadata))
        try:
            _export(module, example, Path(folder) / name, model_file)
        except (RuntimeError, ValueError, TypeError, AttributeError, MlflowException) as error:
            # torch.export raises any of these; a finished training must not fail for it
            client.delete_logged_model(model.model_id)
            raise NoExport(f"{type(error).__name__}: {error}") from error
        client.log_model_artifacts(model.model_id, str(Path(folder) / name))
    if metrics:
        now = int(time.time() * 1000)
        points = [Metric(key, value, now, step, model_id=model.model_id) for key, value in metrics.items()]
        client.log_batch(run_id, metrics=points)
    return client.finalize_logged_model(model.model_id, "READY")


def link(client: "MlflowClient", run_id: str, model_id: str, number: int) -> None:
    """Name a model on its run's page, at the step of its round."""
    from mlflow.entities import LoggedModelOutput

    client.log_outputs(run_id, [LoggedModelOutput(model_id, step=number)])


def _export(module: "torch.nn.Module", example: "np.ndarray", folder: Path, model_file: "Model") -> None:
    import mlflow.pytorch
    import numpy as np
    import torch
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    if len(example) == 1:  # torch.export takes a batch of one for a constant
        example = np.concatenate([example, example])
    module = module.cpu().eval()  # an exported graph cannot be moved to another device
    with torch.no_grad():
        output = module(torch.from_numpy(example)).numpy()
    specs = [Schema([TensorSpec(array.dtype, (-1, *array.shape[1:]))]) for array in (example, output)]
    mlflow.pytorch.save_model(
        module,
        str(folder),
        signature=ModelSignature(inputs=specs[0], outputs=specs[1]),
        input_example=example,
        # Given, as MLflow takes 15-20 s to infer them; without the local part (+cu130) that no index has
        pip_requirements=[f"torch=={torch.__version__.split('+')[0]}", f"numpy=={np.__version__}"],
        serialization_format="pt2",
        mlflow_model=model_file,
    )
