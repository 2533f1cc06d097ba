"""Safetensors files: false header lengths, names, dtypes, shapes and offsets, and damaged bytes.

They come as a client's update, as a state of the run, as a backbone's weights, a file of label embeddings, and the
images of a report.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save

from models.classifiers.resnet import ResNetTokens
from models.errors import UserError
from models.label_aware.label_embeddings import embed_labels
from models.settings.model import BackboneSettings, LabelSettings
from models.weights.loading import load_backbone_weights
from tasks.core.records import ModelRef, Update
from tasks.core.store import Store, state_digest
from tasks.report.sample_predictions import FILE, load_predictions
from tasks.server.validate_updates import update_errors

from .frame import Case, case_rng
from .headers import BYTES, HEADER, joined, parts

SHORT = 120


def cases(seed: int) -> Iterator[Case]:
    """Yield damaged files without end; the name begins with what the file is read as."""
    number = 0
    while True:
        rng = case_rng(seed, number)
        use = sorted(_USES)[number % len(_USES)]
        header, body = parts(_USES[use][0]())
        done = [rng.choice(sorted(HEADER)) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        for name in done:
            HEADER[name](header, rng)
        data = joined(json.dumps(header).encode("utf-8", "surrogatepass"), body)
        if not done or rng.random() < 0.3:
            done.append(rng.choice(sorted(BYTES)))
            data = BYTES[done[-1]](data, rng)
        yield Case(f"{use}: {', '.join(done)}", data)
        number += 1


def try_one(case: Case) -> str:
    """Read it as what it is; a refusal names the file, or the update is refused with a reason."""
    return _USES[case.name.partition(":")[0]][1](case.data)


def _refusal(error: UserError, file: str) -> str:
    assert file in str(error), f"the file is not named: {error}"
    assert len(str(error)) < 2500, "longer than a screen"
    return "refused"


def _as_update(data: bytes) -> str:
    """Read it as a client's update: with the digest of the sound tensors, and with that of what it sends."""
    store, sound = _store(), _state()
    (Path(store.root) / "updates").mkdir(exist_ok=True)
    (Path(store.root) / "updates" / "u.safetensors").write_bytes(data)
    honest, outcomes = state_digest(sound), set()
    try:
        sent = state_digest(store.get_state(ModelRef("updates/u.safetensors", "", 0), verify=False))
    except UserError:
        sent = honest
    for digest in {honest, sent}:
        ref = ModelRef("updates/u.safetensors", digest, 1)
        found = update_errors(store, Update("site-1", ref, 5, 1, {"classification": (1.0, 5.0)}, 1.0), sound, {}, 5)
        assert all(isinstance(line, str) and 0 < len(line) < 500 for line in found)
        outcomes.add("refused" if found else "sound")
        if not found:
            state = store.get_state(ref)
            assert state.keys() == sound.keys()
            assert all(state[k].shape == sound[k].shape and state[k].dtype == sound[k].dtype for k in sound)
            assert all(torch.isfinite(t).all() for t in state.values() if t.is_floating_point())
    return " and ".join(sorted(outcomes))


def _as_state(data: bytes) -> str:
    store = _store()
    (Path(store.root) / "state.safetensors").write_bytes(data)
    ref = ModelRef("state.safetensors", state_digest(_state()), 1)
    held = store.holds(ref)
    try:
        state = store.get_state(ref)
    except UserError as error:
        assert not held
        return _refusal(error, "state.safetensors")
    assert held and state_digest(state) == ref.digest
    return "sound"


def _as_backbone(data: bytes) -> str:
    file = Path(_store().root) / "backbone.safetensors"
    file.write_bytes(data)
    try:
        load_backbone_weights(_backbone(), file)
    except UserError as error:
        return _refusal(error, file.name)
    return "sound"


def _as_labels(data: bytes) -> str:
    file = Path(_store().root) / "labels.safetensors"
    file.write_bytes(data)
    try:
        rows = embed_labels(LabelSettings(source="file", file=file), ["rust", "crack"], 3)
    except UserError as error:
        text = str(error)
        assert file.name in text or "source file" in text, text
        return "refused"
    assert rows.shape == (2, 3) and torch.isfinite(rows).all()
    return "sound"


def _as_images(data: bytes) -> str:
    root = Path(_store().root) / "run"
    root.mkdir(exist_ok=True)
    (root / FILE).write_bytes(data)
    try:
        images = load_predictions(root)
    except UserError as error:
        return _refusal(error, FILE)
    assert images is not None and len(images.images) == len(images.truths) == len(images.scores)
    assert images.images.ndim == 4 and images.truths.shape == images.scores.shape
    return "sound"


@cache
def _store() -> Store:
    return Store(tempfile.mkdtemp(prefix="fedscene-fuzz-"))


@cache
def _state() -> dict[str, torch.Tensor]:
    """Return a small model: weights, a running variance, a counter."""
    return {
        "conv.weight": torch.linspace(-1, 1, 24).view(2, 3, 2, 2),
        "bn.running_var": torch.ones(2),
        "bn.num_batches_tracked": torch.tensor(7),
        "half": torch.ones(3, dtype=torch.bfloat16),
    }


@cache
def _backbone() -> ResNetTokens:
    return ResNetTokens(BackboneSettings(width=0.125, stem="small"))


@cache
def _files() -> dict[str, bytes]:
    labels = {"embeddings": torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])}
    images = {
        "images": torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
        "truths": torch.ones(2, 5),
        "scores": torch.ones(2, 5),
    }
    return {
        "state": save(_state(), metadata={"digest": "x"}),
        "backbone": save(dict(_backbone().state_dict())),
        "labels": save(labels, metadata={"labels": json.dumps(["rust", "crack"])}),
        "images": save(images),
    }


_USES: dict[str, tuple[Callable[[], bytes], Callable[[bytes], str]]] = {
    "update": (lambda: _files()["state"], _as_update),
    "state": (lambda: _files()["state"], _as_state),
    "backbone": (lambda: _files()["backbone"], _as_backbone),
    "labels": (lambda: _files()["labels"], _as_labels),
    "images": (lambda: _files()["images"], _as_images),
}
