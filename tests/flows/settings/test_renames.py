"""Renamed settings: the old name is refused with the new one; a run's own old settings are still read."""

import json
from pathlib import Path

import pytest

from flows.run.find import read_run
from flows.settings.dotted import flat, nested
from flows.settings.explain import rows
from flows.settings.files import load_preset, load_settings, presets
from flows.settings.renames import KEYS, PRESETS, VALUES, current_names, refuse_old_names
from flows.settings.schema import Settings, as_values, validate
from models.errors import UserError

# What `fedscene settings --preset tiny --json` printed before any setting was renamed.
OLD_SETTINGS = Path(__file__).parent / "settings_before_renames.json"


def sections(values):
    """Dotted names of all keys, sections included."""
    found = set()
    for name in flat(values):
        parts = name.split(".")
        found |= {".".join(parts[:number]) for number in range(1, len(parts) + 1)}
    return found


@pytest.mark.parametrize(("old", "new"), KEYS.items())
def test_a_new_key_is_a_setting_and_the_old_one_is_none(old, new):
    known = sections(as_values(Settings()))
    assert new in known
    assert old not in known


@pytest.mark.parametrize(("key", "old", "new"), [(k, *pair) for k, pairs in VALUES.items() for pair in pairs.items()])
def test_a_new_value_is_accepted_and_the_old_one_is_refused(key, old, new):
    kinds = {name.strip("`"): kind for name, kind, _, _ in rows()}
    assert kinds[key] == "text" or new in kinds[key].split(" / ")
    with pytest.raises(UserError, match=f"renamed setting: {key}: {old} is now {new}"):
        load_settings(None, ["tiny"], [f"{key}={old}"])


def test_a_renamed_preset_is_refused_with_its_new_name(monkeypatch):
    assert set(PRESETS.values()) <= set(presets())
    assert not set(PRESETS) & set(presets())
    monkeypatch.setitem(PRESETS, "small", "tiny")
    with pytest.raises(UserError, match="renamed preset: small is now tiny"):
        load_preset("small")


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("ingest.rendered.images=3", "ingest.rendered.images is now ingest.synthetic.images"),
        ("report.pictures=3", "report.pictures is now report.images"),
        ("objective.lmt={known_share: 0.5, loss_reduction: sum}", "objective.lmt is now objective.label_mask_training"),
    ],
)
def test_an_old_key_is_refused_with_its_new_name(override, line):
    with pytest.raises(UserError) as caught:
        load_settings(None, ["tiny"], [override])
    assert line in str(caught.value)
    assert "--set" in str(caught.value)


def test_the_file_with_an_old_name_is_named_and_all_old_names_at_once(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("ingest: {source: rendered, rendered: {images: 30, sites: 2}}\nfederation: {engine: direct}\n")
    for load in (lambda: load_settings(file), lambda: load_settings(None, ["tiny", str(file)])):
        with pytest.raises(UserError) as caught:
            load()
        message = str(caught.value)
        assert "mine.yaml" in message
        assert "ingest.rendered is now ingest.synthetic" in message
        assert "ingest.source: rendered is now synthetic" in message
        assert "federation.engine: direct is now local" in message


def test_a_renamed_section_without_end_is_refused_too():
    endless = {}
    endless["x"] = endless
    with pytest.raises(UserError, match=r"ingest\.rendered"):
        refuse_old_names({"ingest": {"rendered": endless}}, "here")


def test_the_old_settings_of_a_run_are_read_under_the_new_names(tmp_path):
    old = json.loads(OLD_SETTINGS.read_text())
    with pytest.raises(UserError, match="renamed"):
        validate(old, "here")
    (tmp_path / "settings.json").write_text(json.dumps(old))
    settings = read_run(tmp_path)
    assert settings.ingest.source == "synthetic"
    assert settings.ingest.synthetic.images == old["ingest"]["rendered"]["images"]
    since = ["federation.worker_type=auto", "federation.clients_per_task=1"]
    assert as_values(settings) == as_values(load_settings(None, ["tiny"], since))


def test_present_settings_have_no_old_name_and_are_left_as_they_are():
    values = as_values(load_settings(None, ["demo"]))
    refuse_old_names(values, "here")
    assert current_names(values) == values


def test_keys_with_dots_in_mappings_of_the_user_are_left_as_they_are():
    values = nested({"ingest.rendered": {"images": 3}}) | {"x": {"a.b": 1}}
    assert current_names(values) == {"ingest": {"synthetic": {"images": 3}}, "x": {"a.b": 1}}
