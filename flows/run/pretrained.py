"""Weight files that ``fedscene pretrain`` writes: what they say about themselves, and what a run that uses one is told.

The file's own metadata hold the card and a sample of the ids of the images that the backbone was trained on, so they
cannot get lost; the card beside it, ``NAME.json``, is a copy for people.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.settings.schema import Settings
from tasks.data.overlap import overlap

if TYPE_CHECKING:
    from tasks.data.dataset import Dataset

CARD, IMAGES = "fedscene.card", "fedscene.images"  # keys of the metadata
CARD_VERSION = 1


class _Part(BaseModel):
    """A part of a card; what is not read here is for people."""

    model_config = ConfigDict(extra="allow", frozen=True)


class CardNetwork(_Part):
    """The network that was trained."""

    name: str
    normalisation: str


class CardData(_Part):
    """The images that it was trained on."""

    name: str
    digest: str
    seed: int
    images: dict[str, int]


class CardTraining(_Part):
    """How long it was trained."""

    epochs: int
    rounds: int


class CardResult(_Part):
    """How good it was."""

    scores: dict[str, float]


class CardRun(_Part):
    """The run that trained it."""

    fingerprint: str


class Card(_Part):
    """What pretrained weights are, of what and how they were made, and how good their network was."""

    version: Literal[1]
    digest: str
    network: CardNetwork
    data: CardData
    training: CardTraining
    result: CardResult
    run: CardRun

    def describe(self) -> str:
        """Return one line: network, data, epochs and the score."""
        score = ", ".join(f"{name} {value:.4f}" for name, value in self.result.scores.items())
        images = f"{self.data.images.get('train', 0)} training images, seed {self.data.seed}"
        return f"{self.network.name} pretrained on {self.data.name} ({images}), {self.training.epochs} epochs, {score}"


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


def read_card(path: Path) -> Card | None:
    """Return the card in a weight file, ``None`` for a file that ``fedscene pretrain`` did not write."""
    try:
        return Card.model_validate_json(read_metadata(path).get(CARD, "{}"))
    except ValidationError:
        return None


def start_notes(settings: Settings, dataset: "Dataset") -> list[str]:
    """Return what a run should be told of its pretrained start: what it is, and which images of the run it has seen.

    Args:
        settings: The run's settings.
        dataset: Its images, with the splits in effect.
    """
    path = settings.model.weights
    card = read_card(path) if isinstance(path, Path) else None
    if card is None or not isinstance(path, Path):
        return []
    return [f"start: {path}, {card.describe()}", *_other_input(settings, card), *_seen(path, card, dataset)]


def _other_input(settings: Settings, card: Card) -> list[str]:
    """Return a note if the images reach the network in another form than in the pretraining, which no shape shows."""
    before, now = card.network.normalisation, settings.model.inputs.normalisation
    return [f"the weights were pretrained with model.normalisation={before}, and this run uses {now}"] * (before != now)


def _seen(path: Path, card: Card, dataset: "Dataset") -> list[str]:
    """Return notes on images and labels of this run that the weights were trained on."""
    notes = []
    if card.data.digest == dataset.digest:
        notes.append(
            "the weights were pretrained on this run's own data set, so its training labels were used centrally"
        )
    sample = read_metadata(path).get(IMAGES, "").split(",")
    complete = len(sample) == card.data.images.get("train")
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
