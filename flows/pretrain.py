"""Train a backbone centrally and write it for ``model.backbone.weights``: what ``fedscene pretrain`` calls.

It is an ordinary run of one client that holds all training images: it resumes, is tracked and has a report.
"""

import hashlib
import math
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.federate import federate
from flows.federation.progress import Progress
from flows.rounds import Summary
from flows.run.code_version import code_version
from flows.run.inputs import DataPaths, RunInputs, read_inputs
from flows.run.open import read_context
from flows.run.pretrained import CARD, CARD_VERSION, IMAGES, Card, read_card
from flows.settings.dotted import flat
from flows.settings.schema import Settings, as_values, validate
from models.errors import UserError
from models.registry import NETWORKS
from models.settings.timm import FAMILIES
from tasks.core.json_files import write_json
from tasks.core.problem import load_problem
from tasks.core.store import state_bytes, state_digest
from tasks.data.dataset import SPLITS, load_dataset
from tasks.data.overlap import sample_of

if TYPE_CHECKING:
    from torch import Tensor

METHOD = "fedavg"
_PARTITION = {"scheme": "iid", "clients": 1, "min_size": 1}
# What concerns several clients and has no meaning for one
_OF_SEVERAL = {"federation": ("clients_per_round", "quorum", "required")}


@dataclass(frozen=True)
class Pretrained:
    """The result of a pretraining.

    Attributes:
        summary: The run.
        weights: The weight file.
        card: The card beside it.
        overrides: The settings of a run that starts from it, as ``--set`` takes them.
    """

    summary: Summary
    weights: Path
    card: Path
    overrides: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``--json``."""
        return {
            **self.summary.as_dict(),
            "weights": str(self.weights),
            "card": str(self.card),
            "overrides": self.overrides,
        }


def central_settings(settings: Settings, epochs: int | None = None) -> Settings:
    """Return the settings of central training: one client with all training images, FedAvg, the mean.

    Args:
        settings: The user's; network, loss, local training, data and tracking are kept.
        epochs: Passes over the images in total; default: ``federation.rounds`` times ``train.epochs``.

    Raises:
        UserError: The epochs are no multiple of ``train.epochs``, or the network cannot be trained by FedAvg.
    """
    values = as_values(settings)
    per_round = settings.train.epochs
    if epochs is not None:
        if epochs % per_round:
            raise UserError(
                "the epochs are no multiple of those of a round",
                where="--epochs",
                expected=f"a multiple of train.epochs = {per_round}",
                found=epochs,
                hint="set train.epochs=1 to evaluate after every epoch",
            )
        values["federation"]["rounds"] = epochs // per_round
    values["partition"] = _PARTITION
    values["method"]["name"] = METHOD
    values.pop("aggregation", None)
    for section, keys in _OF_SEVERAL.items():
        for key in keys:
            values[section].pop(key, None)
    return validate(values, "fedscene pretrain")


def check_target(settings: Settings, data: DataPaths, out: Path, force: bool) -> None:
    """Refuse a target that is no safetensors file, or that exists and is not this pretraining's own.

    Raises:
        UserError: As said.
    """
    if out.suffix != ".safetensors":
        raise UserError("not a name for weights", where="--out", expected="a name that ends in .safetensors", found=out)
    if out.exists() and not force and not _is_own(read_card(out), read_inputs(settings, data).fingerprint):
        raise _taken(out, read_card(out))


def _is_own(card: Card | None, fingerprint: str) -> bool:
    """Tell whether a card is of the pretraining with this fingerprint, at any epoch."""
    return card is not None and card.run.fingerprint == fingerprint


def pretrain(
    settings: Settings,
    data: DataPaths,
    out: Path,
    *,
    licence: str = "",
    force: bool = False,
    run_id: str | None = None,
    progress: Progress | None = None,
) -> Pretrained:
    """Train, or continue, and write the backbone of the last round with its card.

    Args:
        settings: ``central_settings``.
        data: Folders of the data set and of its one client.
        out: The weight file; the card is beside it, with the suffix ``.json``.
        licence: Licence and source of the images, for the card.
        force: Replace a file that is something else.
        run_id: A name for the run; default: derived.
        progress: Notified of stages and rounds.

    Raises:
        UserError: As ``federate``; or ``out`` exists with another content.
    """
    check_target(settings, data, out, force)
    summary = federate(settings, data, run_id=run_id, tags={"pretrain": out.name}, progress=progress)
    state = _backbone(summary)
    card = _write(out, state, _card(settings, data, summary, state, licence), _images(data), force)
    write_json(out.with_suffix(".json"), card.model_dump() | {"weights": out.name, "sha256": _sha256(out)})
    return Pretrained(summary, out, out.with_suffix(".json"), overrides(settings, out))


def overrides(settings: Settings, weights: Path) -> list[str]:
    """Return the ``section.key=value`` of a run whose backbone is the same and starts from these weights.

    Defaults are named too, as a settings file may have others. The network itself is left out if it is a ResNet-18 or
    one with label tokens: all of these can have such a backbone.
    """
    model, part = settings.model, _part(settings)
    values, classifier = model.model_dump(mode="json"), NETWORKS[model.name].is_classifier
    if classifier and part == "backbone":
        values[part].pop("name")  # of networks with label tokens only
    keys = ["channels", "normalisation", part, *(["mlp"] if model.name == "mlp" else [])]
    chosen = flat(
        {key: values[key] for key in ([] if model.encoder == "resnet18" or not classifier else ["name"]) + keys}
    )
    chosen.pop(model.weights_key)
    return [
        f"model.{key}={value}" for key, value in (chosen | {model.weights_key: weights}).items() if value is not None
    ]


def _part(settings: Settings) -> str:
    """Return the section of the model's settings that describes its backbone."""
    return "timm" if settings.model.name in FAMILIES else "backbone"


def _backbone(summary: Summary) -> "dict[str, Tensor]":
    """Return the tensors of the last round's backbone, under their published names."""
    from models.weights.parts import backbone_state
    from tasks.core.network import build_network

    context = read_context(Path(summary.root))
    return backbone_state(build_network(context, context.open_store(), summary.records[-1].model))


def _card(settings: Settings, data: DataPaths, summary: Summary, state: "dict[str, Tensor]", licence: str) -> Card:
    """Return the card of the last round's backbone."""
    inputs = read_inputs(settings, data)
    metrics = {key: value for key, value in summary.metrics.items() if "/" not in key and math.isfinite(value)}
    return Card.model_validate(
        {
            "version": CARD_VERSION,
            "digest": state_digest(state),
            "bytes": state_bytes(state),
            "network": _network(settings, inputs, len(state)),
            "data": _data(settings, inputs, licence),
            "training": {
                "epochs": summary.rounds * settings.train.epochs,
                "rounds": summary.rounds,
                "objective": settings.objective_for(inputs.kind),
                "local": as_values(settings)["train"],
            },
            "result": {
                "scores": {key: metrics[key] for key in (load_problem(inputs.kind).primary_metric,) if key in metrics},
                "metrics": metrics,
            },
            "run": {
                "id": summary.run_id,
                "fingerprint": inputs.fingerprint,
                "model": summary.digest,
                "code": code_version(),
                "fedscene": version("fedscene"),
            },
        }
    )


def _network(settings: Settings, inputs: RunInputs, tensors: int) -> dict[str, Any]:
    model, part = as_values(settings)["model"], _part(settings)
    return {
        "name": model["name"],
        part: {key: value for key, value in model[part].items() if key != "weights"},
        "tensors": tensors,
        **asdict(settings.model.inputs),
        "image_size": int(inputs.dataset.images.shape[-1]),
        # Of a path the last name only: a card is given away
        "start": "random" if settings.model.weights is None else Path(settings.model.weights).name,
    }


def _data(settings: Settings, inputs: RunInputs, licence: str) -> dict[str, Any]:
    ingest, dataset = settings.ingest, inputs.dataset
    name = f"synthetic {ingest.format_options.set}" if ingest.path is None else Path(ingest.path).resolve().name
    return {
        "name": name,
        "source": ingest.source,
        "kind": inputs.kind,
        "labels": dataset.classes,
        "images": {split: len(dataset.indices(split)) for split in SPLITS},
        "seed": settings.seed,
        "digest": dataset.digest,
        "licence": licence,
    }


def _images(data: DataPaths) -> list[str]:
    """Return a sample of the ids of the training images."""
    dataset = load_dataset(data.dataset)
    return sample_of(dataset.sample_ids[dataset.indices("train")].tolist())


def _write(out: Path, state: "dict[str, Tensor]", card: Card, images: list[str], force: bool) -> Card:
    """Write the weight file, or keep one with the same tensors: runs that start from a file know it by its bytes.

    Returns:
        The card that is in the file.

    Raises:
        UserError: A file with other tensors is there, which are no earlier epoch of this pretraining.
    """
    from safetensors.torch import save

    from models.files import write_bytes

    old = read_card(out)
    if out.exists() and not force:
        if old is not None and old.digest == card.digest:
            return old
        earlier = old is not None and old.training.rounds < card.training.rounds
        if not (earlier and _is_own(old, card.run.fingerprint)):
            raise _taken(out, old)
    write_bytes(out, save(state, metadata={CARD: card.model_dump_json(), IMAGES: ",".join(images)}))
    return card


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _taken(out: Path, card: Card | None) -> UserError:
    return UserError(
        "the file exists with another content",
        where=out,
        found="no weights of fedscene pretrain" if card is None else card.describe(),
        hint="choose another --out, or add --force",
    )
