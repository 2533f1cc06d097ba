"""The outputs of a finished run: the small files that DVC records, and networks for MLflow."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.run.open import Run
from flows.settings.schema import Settings, as_values
from models.files import copy_file, remove
from tasks.core.context import RunContext
from tasks.core.json_files import read_json
from tasks.core.own_models import own_tensors
from tasks.core.records import VERSION, ModelRef, RoundRecord
from tasks.core.store import Store, client_folder
from tasks.data.dataset import SUMMARY
from tasks.data.images.resizing import RESIZED
from tasks.data.run_data import load_run_data
from tasks.evaluation.thresholds import thresholds_of

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


def export(run: Run, settings: Settings, records: list[RoundRecord], report: Path, out: Path) -> None:
    """Write the federation's DVC outputs: ``model/`` with all that is needed to load it, metrics, one row per round.

    ``model/model.safetensors`` is the global model, ``model/clients/<client>.safetensors`` a client's own one, where
    the method keeps such.

    Args:
        run: The run.
        settings: Its settings.
        records: Its rounds.
        report: Its report folder, which has ``metrics.json`` and ``rounds.csv``.
        out: The folder to write to.
    """
    remove(out / "model")  # files of an earlier model must not stay; DVC does the same
    store, target = Store(run.root), Store(out / "model")
    state = records[-1].state
    if state.evaluated_model is not None:
        target.put_state("model.safetensors", store.get_state(state.evaluated_model))
    for client in state.personalised:
        target.put_state(f"{client_folder(client)}.safetensors", own_tensors(store, state, client))
    if run.context.tables:
        target.put_state("labels.safetensors", store.get_state(run.context.tables))
    thresholds = {} if state.personalised else thresholds_of(records[-1].per_class)
    target.write_json(
        "model.json",
        {
            "version": VERSION,
            "classes": list(run.context.classes),
            "kind": run.context.kind,
            "model": as_values(settings)["model"],
            "digest": state.digest,
            "clients": {client: f"{client_folder(client)}.safetensors" for client in state.personalised},
            "run_id": run.id,
            "image_size": settings.ingest.image_size,
            "resize": settings.ingest.resize,
        }
        | ({"thresholds": thresholds} if thresholds else {}),
    )
    for name in ("metrics.json", "rounds.csv"):
        copy_file(report / name, out / name)


def _resized(context: RunContext) -> str:
    """Return how the images of the run's data set became squares; earlier releases knew one way only."""
    made_with = read_json(Path(context.dataset) / SUMMARY, "fedscene data ingest")["settings"]
    return RESIZED[made_with.get("resize", "squash")]


def model_factory(
    context: RunContext, ref: ModelRef, thresholds: Mapping[str, float] | None = None
) -> "Callable[[], tuple[nn.Module, np.ndarray, dict[str, Any]]]":
    """Return a function that makes a network from images to probabilities, an example input, and its metadata.

    Args:
        context: The run.
        ref: The network's weights.
        thresholds: Class -> threshold that was tuned with these weights; without any, that of the settings counts.
    """

    def make() -> "tuple[nn.Module, np.ndarray, dict[str, Any]]":
        from models.layers.probabilities import Probabilities
        from tasks.core.network import build_network

        network = build_network(context, context.open_store(), ref).cpu().eval()
        example = load_run_data(context)[0].images[:2].astype("float32") / 255.0
        metadata = model_metadata(context, example.shape[-1], _resized(context), thresholds)
        return Probabilities(network, context.problem.activation).eval(), example, metadata

    return make


def model_metadata(
    context: RunContext, size: int, resized: str, thresholds: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return what an exported network says about itself: its labels, its input and its output.

    Args:
        context: The run.
        size: Side of the images, pixels.
        resized: How images become squares, in words.
        thresholds: Class -> threshold that was tuned with these weights.
    """
    rule = "from its threshold in thresholds on a label is predicted"
    return {
        "labels": list(context.classes),
        "input": f"float32 [N, 3, {size}, {size}], RGB in 0..1, {resized}",
        "output": "probabilities [N, C] in the order of the labels; "
        + (rule if thresholds else context.problem.rule(context.evaluation.threshold)),
    } | ({"thresholds": dict(thresholds)} if thresholds else {})
