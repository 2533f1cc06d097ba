"""``round.json``: text changed or cut, values of other types, missing, repeated or new keys, huge numbers."""

import copy
import json
import math
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from models.errors import UserError
from tasks.core.finished_rounds import finished_rounds, prune
from tasks.core.round_state import RoundState
from tasks.core.round_summary import load_records, round_metrics
from tasks.core.store import Store
from tasks.report import report
from tests.support.fabricated import CLASSES, fabricated_record

from .frame import Case, case_rng

SHORT = 120
_MODEL = "rounds/0001/model.safetensors"
_STATE = {"w": torch.arange(6.0), "n": torch.tensor(3)}
_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 3, 2**70, -0.5, math.nan, math.inf, -math.inf, "", "x" * 3000, "1", "nan", "../../escape",
    "/etc/passwd", "rounds/0001", "\x00", "\ud800", [], [1], [[]], {}, {"a": 1}, {"": {"": []}},
)  # fmt: skip


def cases(seed: int) -> Iterator[Case]:
    """Yield texts of damaged records without end."""
    number = 0
    while True:
        rng, value, done = case_rng(seed, number), _former() if number % 4 == 3 else _sound(), []
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            done.append(rng.choice(sorted(_CHANGES)))
            _CHANGES[done[-1]](value, rng)
        text = json.dumps(value)
        if rng.random() < 0.25:
            done.append(rng.choice(sorted(_TEXTS)))
            text = _TEXTS[done[-1]](text, rng)
        yield Case(", ".join(done), text.encode("utf-8", "surrogatepass"))
        number += 1


def try_one(case: Case) -> str:
    """Read it as resume and report do; an accepted record must work for metrics, report and clean-up."""
    root = _run()
    file = root / "rounds" / "0001" / "round.json"
    file.write_bytes(case.data)
    outcomes = []
    for read in (lambda: finished_rounds(Store(root), 1), lambda: load_records(root)):
        try:
            outcomes.append(read())
        except UserError as error:
            assert "rounds/0001" in str(error), f"the file is not named: {error}"
            assert len(str(error)) < 2500 and str(error).count("\n") < 12, "longer than a screen"
            outcomes.append(None)
    if outcomes[1] is None:
        assert outcomes[0] is None, "a resume takes what a report refuses"
        return "refused"
    (record,) = outcomes[1]
    assert record.round == 1
    assert all(isinstance(value, float) for value in round_metrics(record).values())
    json.dumps(record.as_dict())
    with mock.patch.object(report, "write_plots", lambda *_: {}):  # images would take a second a case
        report.build_report(root, root / "report", report.ReportSettings(images=0))
    if outcomes[0] is None:
        return "its files are refused"
    prune(Store(root), record)
    assert (root / "rounds" / "0001" / "model.safetensors").is_file() and (root.parent / "beside").is_file()
    return "taken"


@cache
def _run() -> Path:
    """Create a run with one round."""
    folder = Path(tempfile.mkdtemp(prefix="fedscene-fuzz-"))
    (folder / "beside").write_text("not the run's")
    root = folder / "run"
    Store(root).put_state(_MODEL, _STATE)
    for name, value in (("run.json", {"run_id": "r", "classes": CLASSES}), ("settings.json", {"evaluation": {}})):
        (root / name).write_text(json.dumps(value))
    return root


@cache
def _text() -> str:
    """Return the text of a sound record whose model exists."""
    with tempfile.TemporaryDirectory() as folder:
        model = Store(folder).put_state(_MODEL, _STATE)
    return json.dumps(replace(fabricated_record(1), state=RoundState.starting_from(model)).as_dict())


def _sound() -> dict[str, Any]:
    return json.loads(_text())


def _former() -> dict[str, Any]:
    """Return a sound record in the layout of version 1, with something in every field that is part of ``state`` now."""
    value = _sound() | {"version": 1}
    model = value.pop("state")["models"]["global"]
    first, second = value["participants"][:2]
    return value | {
        "model": model,
        "prototypes": [model],
        "groups": dict.fromkeys(value["participants"], 0),
        "client_states": {first: model},
        "server_state": model,
        "overlays": {second: model},
    }


def _places(value: Any, at: tuple = ()) -> list[tuple]:
    """Return every place in nested values, as a path of keys."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [place for key, part in inner for place in _places(part, (*at, key))]


def _parent(value: Any, rng: random.Random) -> tuple[Any, Any]:
    """Return the container and key of a place, shallow ones as likely as the many deep ones."""
    places = _places(value)
    if not places:
        return {}, None
    depth = rng.choice(sorted({len(place) for place in places}))
    *way, key = rng.choice([place for place in places if len(place) == depth])
    for step in way:
        value = value[step]
    return value, key


def _replace(value: Any, rng: random.Random) -> None:
    holder, key = _parent(value, rng)
    if key is not None:
        holder[key] = copy.deepcopy(rng.choice(_ODD))


def _remove(value: Any, rng: random.Random) -> None:
    holder, key = _parent(value, rng)
    if key is not None:
        del holder[key]


def _add(value: Any, rng: random.Random) -> None:
    holder, _ = _parent(value, rng)
    if isinstance(holder, list):
        holder.append(copy.deepcopy(rng.choice(_ODD)))
    else:
        holder[str(rng.choice(_ODD))[:50]] = copy.deepcopy(rng.choice(_ODD))


def _swap(value: Any, rng: random.Random) -> None:
    (first, a), (second, b) = _parent(value, rng), _parent(value, rng)
    if a is not None and b is not None:
        first[a], second[b] = copy.deepcopy(second[b]), copy.deepcopy(first[a])


def _rename(value: Any, rng: random.Random) -> None:
    holder, key = _parent(value, rng)
    if isinstance(holder, dict) and key is not None:
        holder[rng.choice(("", "é", "A/B", f"{key}2", "-1", "1e3"))] = holder.pop(key)


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _noise(text: str, rng: random.Random) -> str:
    letters = list(text)
    for _ in range(rng.choice((1, 2, 8))):
        if letters:
            letters[rng.randrange(len(letters))] = rng.choice('"{}[],:0-9eE.\\\x00\ud800é')
    return "".join(letters)


def _deep(text: str, rng: random.Random) -> str:
    depth = rng.choice((200, 100_000))
    return text[:-1] + ', "notes": ' + "[" * depth + "]" * depth + "}"


def _twice(text: str, rng: random.Random) -> str:
    return text[:-1] + f', "{rng.choice(("round", "model", "metrics", "updates"))}": {json.dumps(rng.choice(_ODD))}}}'


def _long_number(text: str, rng: random.Random) -> str:
    return text.replace("0.", "9" * rng.choice((400, 5000)) + ".", 1) if rng.random() < 0.5 else "9" * 5000


_CHANGES = {"replaced": _replace, "removed": _remove, "added": _add, "swapped": _swap, "renamed": _rename}
_TEXTS = {"cut": _cut, "noise": _noise, "deep": _deep, "a key twice": _twice, "a long number": _long_number}
