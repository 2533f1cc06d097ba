"""A training workload as the hand-written loops and the other frameworks see it: arrays, weights, who trains when."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

FIRST_BATCH = "FEDSCENE_FIRST_BATCH"  # in the environment: file to create after the first trained batch


class Job:
    """What ``benchmarks.training.export`` wrote.

    Args:
        folder: Its folder.
        device: Where networks are trained.
        bf16: Whether in bfloat16, by autocast.
    """

    def __init__(self, folder: Path, device: str = "cpu", bf16: bool = False) -> None:
        self.folder, self.device, self.bf16 = folder, device, bf16
        self.facts: dict[str, Any] = json.loads((folder / "job.json").read_text())
        self.plan = {int(number): ids for number, ids in self.facts["plan"].items()}
        self.clients = sorted(self.facts["rows"])
        self.batch_size, self.lr = self.facts["batch_size"], self.facts["lr"]
        self.images = np.load(folder / "images.npy")
        self.targets = np.load(folder / "targets.npy")
        self.rows = {client: np.array(rows) for client, rows in self.facts["rows"].items()}

    @cached_property
    def orders(self) -> Mapping[str, np.ndarray]:
        """Round/client -> positions of its images in each epoch [epochs, images]."""
        with np.load(self.folder / "orders.npz") as file:
            return {key: file[key] for key in file.files}

    def initial(self) -> dict[str, Tensor]:
        """Return the first global weights."""
        return load_file(self.folder / "initial.safetensors", device=self.device)

    def network(self) -> nn.Module:
        """Return the network with the first global weights."""
        from models.build import load_model
        from models.registry import ModelSpec
        from models.settings.model import ModelSettings

        spec = ModelSpec(tuple(self.facts["classes"]), self.facts["image_size"])
        return load_model(ModelSettings.model_validate(self.facts["model"]), spec, self.initial()).to(self.device)

    def batches(self, round_: int, client: str) -> Iterator[np.ndarray]:
        """Yield the rows of a client's batches in a round; a last batch of one image joins the one before."""
        rows = self.rows[client]
        for order in self.orders[f"{round_}/{client}"]:
            cuts = list(range(self.batch_size, len(order), self.batch_size))
            if cuts and len(order) - cuts[-1] == 1:
                cuts.pop()
            yield from (rows[part] for part in np.split(order, cuts))

    def tensors(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return images [B, 3, S, S] in 0..1 and targets [B, C]."""
        images, targets = torch.from_numpy(self.images[rows]), torch.from_numpy(self.targets[rows])
        return images.to(self.device).float().div_(255), targets.to(self.device).float()

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of logits [B, C] for 0/1 targets [B, C]."""
        if self.facts["kind"] == "single_label":
            return F.cross_entropy(logits, targets.argmax(dim=1))
        return F.binary_cross_entropy_with_logits(logits, targets)

    def train(self, model: nn.Module, round_: int, client: str) -> None:
        """Train a model in place: the hand-written loop."""
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=self.lr)
        for rows in self.batches(round_, client):
            images, targets = self.tensors(rows)
            with torch.autocast("cuda", torch.bfloat16) if self.bf16 else nullcontext():
                loss = self.loss(model(images).float(), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            show_first_batch()

    def weights(self, round_: int) -> dict[str, float]:
        """Return each participant's share of the images of a round."""
        sizes = {client: len(self.rows[client]) for client in self.plan[round_]}
        return {client: size / sum(sizes.values()) for client, size in sizes.items()}

    @torch.no_grad()
    def score(self, model: nn.Module) -> dict[str, float]:
        """Return the loss on the test images."""
        model.eval()
        images, targets = self.tensors(np.array(self.facts["test_rows"]))
        logits = torch.cat([model(part) for part in images.split(64)])
        return {"loss": float(self.loss(logits.double(), targets.double()))}


def show_first_batch() -> None:
    """Create the file that says that a batch has been trained, if one is asked for."""
    if path := os.environ.pop(FIRST_BATCH, None):
        Path(path).touch()
