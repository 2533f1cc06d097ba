"""Damaged records and weights of a run: refused with file and place, whatever the damage; sound neighbours are read."""

import dataclasses
import json
import math

import pytest
import torch

from models.errors import UserError
from tasks.core.finished_rounds import finished_rounds, load_round
from tasks.core.records import ModelRef, RoundRecord, Update, read_round
from tasks.core.round_state import RoundState
from tasks.core.round_summary import load_records
from tasks.core.store import Store
from tasks.report.sample_predictions import FILE, load_predictions
from tasks.server.validate_updates import update_errors
from tests.support.fabricated import fabricated_record


def value_of(number=1):
    return json.loads(json.dumps(fabricated_record(number).as_dict()))


def write(root, text, number=1):
    folder = root / "rounds" / f"{number:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "round.json").write_text(text)


def changed(way, new):
    value = holder = value_of()
    for key in way[:-1]:
        holder = holder[key]
    holder[way[-1]] = new
    return json.dumps(value)


def without(name):
    return json.dumps({key: value for key, value in value_of().items() if key != name})


DAMAGED = {
    "infinite count": (
        changed(("state", "models", "global", "bytes"), math.inf),
        "state.models.global.bytes is inf",
    ),
    "cluster of text": (changed(("state", "cluster_of"), {"a": "first"}), "state.cluster_of.a is 'first'"),
    "no state": (without("state"), "state is .*field required"),
    "later release": (changed(("version",), 3), "later release"),
    "empty pair": (
        changed(("updates", "1", 0, "sums", "graph"), []),
        r"updates.1\[0\].sums.graph\[0\] is \[\]: field required",
    ),
    "metric of text": (changed(("metrics", "macro_ap"), "high"), "metrics.macro_ap is 'high'"),
    "metric of truth": (changed(("metrics", "macro_ap"), True), "metrics.macro_ap is True"),
    "class without figures": (changed(("per_class", "rust"), 3), "per_class.rust is 3"),
    "number as note": (changed(("notes",), [5]), r"notes\[0\] is 5"),
    "bytes as text": (changed(("stages", 1, "bytes_up"), "many"), r"stages\[1\].bytes_up is 'many'"),
    "half a letter": (changed(("participants",), ["\ud800"]), "escape|surrogate"),
    "endless number": (changed(("metrics", "loss"), 10**400), "a number that is too large"),
    "another round": (changed(("round",), 7), "of round 7"),
    "digits without end": (json.dumps(value_of()).replace('"round": 1', '"round": ' + "9" * 5000), "digits"),
    "brackets without end": ("[" * 100_000, "recursion"),
    "list": ("[]", "mapping|list"),
    "cut": (json.dumps(value_of())[:900], "delimiter|Unterminated|Expecting"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_record_is_refused_with_its_file_by_resume_and_report(tmp_path, case):
    text, words = DAMAGED[case]
    write(tmp_path, text)
    for read in (lambda: load_round(Store(tmp_path), 1), lambda: finished_rounds(Store(tmp_path), 1),
                 lambda: load_records(tmp_path)):  # fmt: skip
        with pytest.raises(UserError, match=rf"(?i){words}") as refused:
            read()
        assert "rounds/0001" in str(refused.value) and len(str(refused.value)) < 1500


def test_a_sound_record_is_read_whatever_figures_are_not_defined(tmp_path):
    value = value_of()
    value["metrics"] |= {"macro_ap": math.nan, "loss": 3}
    value["per_client"] = {}
    write(tmp_path, json.dumps(value))
    (read,) = load_records(tmp_path)
    assert math.isnan(read.metrics["macro_ap"]) and read.metrics["loss"] == 3
    sound = fabricated_record(1)
    assert read_round(json.loads(json.dumps(sound.as_dict())), 1) == sound
    assert {f.name for f in dataclasses.fields(RoundRecord)} | {"version"} == value.keys() and value["version"] == 2
    assert {f.name for f in dataclasses.fields(RoundState)} == value["state"].keys()


def test_all_parts_of_a_state_survive_json():
    refs = [ModelRef(f"{k}.safetensors", f"digest{k}", k) for k in range(5)]
    state = RoundState(
        models={"global": refs[0], "client/a": refs[1]},
        private={"a": refs[2]},
        personal={"b": refs[3]},
        server={"scaffold": refs[4]},
        own={"a": "client/a"},
    )
    state.set_clusters({"a": 1, "b": 0}, refs[:2])
    record = dataclasses.replace(fabricated_record(1), state=state)
    assert read_round(json.loads(json.dumps(record.as_dict())), 1) == record


def test_an_update_with_endless_names_is_refused_in_a_short_line(tmp_path):
    store, sound = Store(tmp_path), {"w": torch.ones(2)}
    ref = store.put_state("u.safetensors", sound | {"x" * 5000: torch.ones(1), "a\u202eb": torch.ones(1)})
    found = update_errors(store, Update("a", ref, 5, 1, {}, 1.0), sound, {}, 5)
    assert len(found) == 2 and all(len(line) < 200 for line in found) and "a\\u202eb" in found[0]
    good = store.put_state("v.safetensors", sound)
    assert update_errors(store, Update("a", good, 5, 1, {}, 1.0), sound, {}, 5) == []
    assert update_errors(store, Update("a", ModelRef("no.safetensors", "", 0), 5, 1, {}, 1.0), sound, {}, 5)


@pytest.mark.parametrize("wrong", [{"truths": torch.ones(3, 5)}, {"images": torch.zeros(2, 4, 4, 3)}, {"scores": None}])
def test_images_that_do_not_belong_together_are_refused(tmp_path, wrong):
    sound = {
        "images": torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
        "truths": torch.ones(2, 5),
        "scores": torch.ones(2, 5),
    }
    store = Store(tmp_path)
    store.put_state(FILE, sound)
    assert load_predictions(tmp_path).scores.shape == (2, 5)
    store.put_state(FILE, {name: part for name, part in (sound | wrong).items() if part is not None})
    with pytest.raises(UserError, match=rf"damaged\n  where: .*{FILE}"):
        load_predictions(tmp_path)
