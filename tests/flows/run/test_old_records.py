"""Records on disk are read by other releases than the one that wrote them."""

import json
import shutil
from pathlib import Path

import pytest

from flows.run.find import read_run
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.finished_rounds import load_round
from tasks.core.json_files import read_json
from tasks.core.record_reading import ROUND_VERSION, VERSION
from tasks.core.records import ModelRef, RoundRecord, RoundState, Update, read_round
from tasks.core.round_summary import load_records
from tasks.core.store import Store
from tasks.data.dataset import load_dataset
from tasks.report.report import build_report

# rounds/0002/round.json as commit 5cfad71 wrote it
OLD = """{"round": 2, "model": {"uri": "rounds/0002/model.safetensors", "digest": "ab12", "bytes": 400},
"prototypes": [], "groups": {"client-0": 0}, "participants": ["client-0", "client-1"], "updates": {"1": [{"client":
"client-0", "model": {"uri": "", "digest": "cd12", "bytes": 400}, "samples": 12, "steps": 3, "sums": {"classification":
[6.0, 12.0]}, "seconds": 0.5, "state": {"uri": "clients/client-0/x.safetensors", "digest": "ef12", "bytes": 40}}]},
"dropped": [{"client": "client-1", "stage": 1, "reason": "no answer in 3600 s"}], "stages": [{"name":
"stage 1 local training", "seconds": 1.5, "bytes_down": 800, "bytes_down_naive": 800, "bytes_up": 400, "clients": 1}],
"weights": {"client-0": 1.0}, "metrics": {"macro_ap": 0.5, "loss": 0.7}, "per_class": {"crane": {"ap": 0.5, "support":
4.0}}, "per_site": {"north": {"macro_ap": 0.5, "images": 8.0}}, "per_client": {"client-0": {"macro_ap": 0.25}},
"server_state": null, "client_states": {"client-0": {"uri": "clients/client-0/x.safetensors", "digest": "ef12",
"bytes": 40}}, "notes": ["by size"]}"""


FORMER = {"model", "prototypes", "groups", "client_states", "server_state", "overlays"}  # keys that became ``state``


def write(root, value, number=2):
    folder = root / "rounds" / f"{number:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "round.json").write_text(value if isinstance(value, str) else json.dumps(value))


def test_a_round_of_5cfad71_is_read_as_it_was(tmp_path):
    write(tmp_path, OLD)
    record, old = load_round(Store(tmp_path), 2), json.loads(OLD)
    assert load_records(tmp_path) == [record]
    assert record.state == RoundState(
        models={"global": ModelRef("rounds/0002/model.safetensors", "ab12", 400)},
        private={"client-0": ModelRef("clients/client-0/x.safetensors", "ef12", 40)},
        cluster_of={"client-0": 0},
    )
    assert record.model == record.state.models["global"]
    again = json.loads(json.dumps(record.as_dict()))
    assert [update.pop("compressed_bytes") for update in again["updates"]["1"]] == [None]  # it was not there yet
    renamed = FORMER | {"per_client"}
    assert {key: again[key] for key in old.keys() - renamed} == {key: old[key] for key in old.keys() - renamed}
    assert again["per_client"] == {"client-0": {"local/macro_ap": 0.25}}, "by the protocol's name"
    assert again["version"] == ROUND_VERSION and record.updates[1][0].mean("classification") == 0.5
    assert again["state"] == {
        "models": {"global": old["model"]},
        "private": old["client_states"],
        "personal": {},
        "server": {},
        "own": {},
        "cluster_of": old["groups"],
        "participations": {},
        "evaluated": "global",
    }
    assert not FORMER & again.keys()
    write(tmp_path, again)
    assert load_round(Store(tmp_path), 2) == record


def test_every_former_field_of_a_round_has_its_place_in_the_state(tmp_path):
    refs = {name: ModelRef(f"rounds/0002/{name}.safetensors", name, 8) for name in ("p0", "p1", "server", "overlay")}
    plain = {name: vars(ref) for name, ref in refs.items()}
    old = json.loads(OLD) | {
        "version": 1,
        "prototypes": [plain["p0"], plain["p1"]],
        "server_state": plain["server"],
        "overlays": {"client-1": plain["overlay"]},
    }
    write(tmp_path, old)
    state = load_round(Store(tmp_path), 2).state
    assert state.models.keys() == {"global", "cluster/0", "cluster/1"}
    assert state.cluster_models == [refs["p0"], refs["p1"]] and state.cluster_of == {"client-0": 0}
    assert state.server == {"method": refs["server"]}
    assert state.personal == {"client-1": refs["overlay"]} and state.personalised == ["client-1"]
    assert state.private == {"client-0": ModelRef("clients/client-0/x.safetensors", "ef12", 40)}
    assert state.own_model("client-1") == (state.global_model, (refs["overlay"],))


def test_a_field_that_is_missing_has_its_default_and_one_that_is_not_known_is_left_out(tmp_path):
    value = json.loads(OLD)
    bare = {"round": 2, "model": value["model"]}
    write(tmp_path, bare)
    assert load_round(Store(tmp_path), 2) == RoundRecord.of(bare)
    for name in value:
        if name not in bare:
            write(tmp_path, {key: entry for key, entry in value.items() if key != name})
            assert len(load_records(tmp_path)) == 1, name
    value["of_a_later_release"] = {"x": 1}
    for entries in (value["stages"], value["dropped"], value["updates"]["1"]):
        entries[0]["of_a_later_release"] = 1
    write(tmp_path, value)
    assert load_round(Store(tmp_path), 2) == read_round(json.loads(OLD), 2)


@pytest.mark.parametrize("field", sorted(FORMER))
@pytest.mark.parametrize("wrong", [3.5, True, "text"])
def test_a_former_field_of_another_kind_is_damage(tmp_path, field, wrong):
    write(tmp_path, json.loads(OLD) | {field: wrong})
    for read in (lambda: load_round(Store(tmp_path), 2), lambda: load_records(tmp_path)):
        with pytest.raises(UserError, match=r"damaged[\s\S]*rounds/0002"):
            read()


def test_what_a_round_cannot_be_without_is_damage(tmp_path):
    write(tmp_path, {"round": 2})
    with pytest.raises(UserError, match="damaged"):
        load_round(Store(tmp_path), 2)


def test_a_record_of_a_later_version_is_refused_by_that_name(tmp_path, tiny_data):
    later = json.loads(OLD) | {"version": ROUND_VERSION + 1}
    write(tmp_path, later)
    (tmp_path / "run.json").write_text(json.dumps({"version": VERSION + 1, "classes": []}))
    (tmp_path / "settings.json").write_text(json.dumps(as_values(Settings())))
    (tmp_path / "dataset.json").write_text(json.dumps({"version": VERSION + 1}))
    for read, version in (
        (lambda: load_round(Store(tmp_path), 2), ROUND_VERSION + 1),
        (lambda: load_records(tmp_path), ROUND_VERSION + 1),
        (lambda: read_run(tmp_path), VERSION + 1),
        (lambda: read_json(tmp_path / "dataset.json", "hint"), VERSION + 1),
        (lambda: load_dataset(tmp_path), VERSION + 1),
    ):
        with pytest.raises(UserError, match=rf"later release[\s\S]*version {version}"):
            read()
    write(tmp_path, OLD)
    with pytest.raises(UserError, match="later release"):
        build_report(tmp_path, tmp_path / "report")


def test_every_record_that_is_written_bears_its_version(tiny_data):
    summaries = (tiny_data.dataset / "dataset.json", tiny_data.clients / "clients.json")
    assert [json.loads(file.read_text())["version"] for file in summaries] == [VERSION, VERSION]
    update = json.loads(OLD)["updates"]["1"][0]
    assert Update.of(update).as_dict()["version"] == VERSION


def test_findings_of_another_release_are_decoded_again(tmp_path):
    from tasks.data.decoding.chunk_files import DamagedChunkError, read_cached, with_checksum

    (tmp_path / "part.json").write_text(with_checksum([{"of_a_later_release": 1}]))
    with pytest.raises(DamagedChunkError, match="another release"):
        read_cached(tmp_path, "part", 1)


FIXTURE = Path(__file__).parents[2] / "fixtures" / "run-0738cf6"


def test_a_run_written_before_settings_and_records_were_renamed_is_read_and_reported(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(FIXTURE, run)
    settings, records = read_run(run), load_records(run)
    assert (settings.ingest.source, settings.federation.engine) == ("synthetic", "local")
    assert [record.round for record in records] == [1, 2]
    assert len(records[1].state.cluster_models) == 2
    assert set(records[1].state.cluster_of) == {"site-1", "site-2", "site-3", "site-4"}
    assert records[1].metrics["macro_ap"] == pytest.approx(0.40055829)
    build_report(run, tmp_path / "report", settings.report)
    assert "0.401" in (tmp_path / "report" / "report.md").read_text()


def test_a_record_that_was_read_is_written_in_the_present_layout_with_all_that_it_held():
    old = json.loads((FIXTURE / "rounds" / "0002" / "round.json").read_text())
    new = json.loads(json.dumps(RoundRecord.of(old).as_dict()))
    state = {
        "models": {"global": old["model"], "cluster/0": old["prototypes"][0], "cluster/1": old["prototypes"][1]},
        "private": {},
        "personal": {},
        "server": {},
        "own": {},
        "cluster_of": old["groups"],
        "participations": {},
        "evaluated": "global",
    }
    rest = {key: value for key, value in old.items() if key not in FORMER}
    rest["updates"] = {
        stage: [update | {"compressed_bytes": None} for update in updates] for stage, updates in old["updates"].items()
    }
    assert new == rest | {"state": state, "version": ROUND_VERSION, "confusion": []}
    assert RoundRecord.of(new) == RoundRecord.of(old)
