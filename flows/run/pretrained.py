"""Weight files that ``fedscene pretrain`` writes: what they say about themselves, and what a run that uses one is told.

The file's own metadata hold the card and a sample of the ids of the images that the backbone was trained on, so they
cannot get lost; the card beside it, ``NAME.json``, is a copy for people.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.settings.schema import Settings
from tasks.data.overlap import overlap

if TYPE_CHECKING:
    from tasks.data.dataset import Dataset

CARD, IMAGES = "fedscene.card", "fedscene.images"  # keys of the metadata
CARD_VERSION = 1


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file; empty for any other file, which its reader reports."""
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors" or not path.is_file():
        return {}
    try:
        with safe_open(path, "numpy") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError):
        return {}


def read_card(path: Path) -> dict[str, Any]:
    """Return the card in a weight file, empty for a file that ``fedscene pretrain`` did not write."""
    try:
        card = json.loads(read_metadata(path).get(CARD, "{}"))
    except ValueError:
        return {}
    return card if isinstance(card, dict) and card.get("version") == CARD_VERSION else {}


def start_notes(settings: Settings, dataset: "Dataset") -> list[str]:
    """Return what a run should be told of its pretrained start: what it is, and which images of the run it has seen.

    Args:
        settings: The run's settings.
        dataset: Its images, with the splits in effect.
    """
    notes: list[str] = []
    for path in settings.model.weight_files:
        card = read_card(Path(path))
        if card:
            notes += [
                f"start: {path}, {describe(card)}",
                *_other_input(settings, card),
                *_seen(Path(path), card, dataset),
            ]
    return notes


def _other_input(settings: Settings, card: dict[str, Any]) -> list[str]:
    """Return a note if the images reach the network in another form than in the pretraining, which no shape shows."""
    before, now = card["network"]["normalisation"], settings.model.inputs.normalisation
    return [f"the weights were pretrained with model.normalisation={before}, and this run uses {now}"] * (before != now)


def describe(card: dict[str, Any]) -> str:
    """Return one line about pretrained weights: network, data, epochs and the score."""
    data, training = card["data"], card["training"]
    score = ", ".join(f"{name} {value:.4f}" for name, value in card["result"]["scores"].items())
    return (
        f"{card['network']['name']} pretrained on {data['name']} ({data['images']['train']} training images, "
        f"seed {data['seed']}), {training['epochs']} epochs, {score}"
    )


def _seen(path: Path, card: dict[str, Any], dataset: "Dataset") -> list[str]:
    """Return notes on images and labels of this run that the weights were trained on."""
    notes = []
    if card["data"]["digest"] == dataset.digest:
        notes.append("the weights were pretrained on this run's own data set, so all labels in it were used centrally")
    sample = read_metadata(path).get(IMAGES, "").split(",")
    complete = len(sample) == card["data"]["images"]["train"]
    for split, meaning in (
        ("test", "the test metrics are too good"),
        ("val", "the validation metrics are too good"),
        ("train", "the start is not from foreign images"),
    ):
        found = overlap(sample, complete, dataset.sample_ids[dataset.indices(split)].tolist())
        if found.images:
            about = "" if found.exact else "about "
            seen = f"{about}{found.images} of this run's {found.of} {split} images"
            notes.append(f"the weights were pretrained on {seen}: {meaning}")
    return notes
