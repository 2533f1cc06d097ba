"""Test images with the final model's scores, stored in the run so that reports need no network."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import UserError
from tasks.core.former_names import former_file_name
from tasks.core.records import ModelRef
from tasks.core.store import Store
from tasks.data.run_data import load_run_data
from tasks.report.report import MAX_IMAGES, Predictions, ReportSettings, build_report

if TYPE_CHECKING:
    from tasks.core.context import RunContext

FILE = "sample_predictions.safetensors"


def sample_predictions(context: "RunContext", ref: ModelRef) -> ModelRef:
    """Predict test images sampled by the run's seed, as many as a report may show, and store them.

    Args:
        context: The run.
        ref: The model.

    Returns:
        Reference of ``images`` uint8 [n, 3, S, S], ``truths`` [n, C] and ``scores`` [n, C].
    """
    import numpy as np
    import torch

    from models.layers.probabilities import activate
    from tasks.core.network import build_network, predict_logits
    from tasks.core.randomness import numpy_generator

    store, (dataset, _) = context.open_store(), load_run_data(context)
    rows = dataset.indices("test")
    rows = numpy_generator(context.seed, "report images").permutation(rows)[:MAX_IMAGES]
    images = np.ascontiguousarray(dataset.images[rows])
    logits = predict_logits(context, build_network(context, store, ref), images)
    return store.put_state(
        FILE,
        {
            "images": torch.from_numpy(images),
            "truths": torch.from_numpy(dataset.targets[rows]),
            "scores": activate(torch.from_numpy(logits), context.problem.activation),
        },
    )


def load_predictions(run_root: Path) -> Predictions | None:
    """Load the predictions of a run; ``None`` if it has none yet."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    store = Store(run_root)
    file = FILE if store.exists(FILE) else former_file_name(FILE)
    if not store.exists(file):
        return None
    try:
        with store.local(file) as path:
            arrays = load(path.read_bytes())
        found = Predictions(arrays["images"], arrays["truths"], arrays["scores"])
        _check_shapes(found)
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError) as error:  # raised by its reader
        wrong = f"{type(error).__name__}: {error}"[:300]
        raise UserError(
            "a file of the run is damaged", where=store.path(file), found=wrong, hint="remove it"
        ) from error
    return found


def _check_shapes(found: Predictions) -> None:
    """Raise a ValueError unless the arrays belong to one set of images."""
    images, truths, scores = found.images.shape, found.truths.shape, found.scores.shape
    if len(images) != 4 or images[1] != 3 or len(truths) != 2 or truths != scores or images[0] != truths[0]:
        raise ValueError(f"images {images}, truths {truths} and scores {scores} do not belong together")
    if found.images.dtype.kind != "u" or found.scores.dtype.kind != "f":
        raise ValueError(f"images are {found.images.dtype}, scores {found.scores.dtype}")


def report_with_predictions(
    run_root: Path, out: Path, settings: ReportSettings | None = None, rounds: int | None = None
) -> dict[str, Any]:
    """Build the report of a run (``tasks.report.report.build_report``) with its predictions."""
    return build_report(run_root, out, settings, load_predictions(run_root), rounds)
