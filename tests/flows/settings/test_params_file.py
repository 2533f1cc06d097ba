"""`fedscene settings --out` adds the keys that a settings file lacks and keeps its other lines."""

from pathlib import Path

import pytest

from flows.cli.main import app
from flows.settings.dotted import flat
from flows.settings.files import load_settings
from flows.settings.params_file import write_settings
from flows.settings.schema import Settings, as_values
from tasks.core.yaml_text import parse_yaml
from tasks.versioning.dvc import write_params

ROOT = Path(__file__).parents[3]


def run(*arguments):
    from typer.testing import CliRunner

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def without(text, *lines):
    for line in lines:
        assert line in text, line
        text = text.replace(line, "")
    return text


def test_settings_out_adds_the_keys_of_a_new_method(tmp_path):
    whole = (ROOT / "params.yaml").read_text()
    file = tmp_path / "params.yaml"
    file.write_text(without(whole, "  fednova: {}\n", "  scaffold:\n    weighting: uniform\n"))
    assert "fednova" not in parse_yaml(file.read_text())["method"]
    done = run("settings", "--out", file, "--preset", "demo")
    assert done.exit_code == 0
    assert "method.fednova: added" in done.output and "method.scaffold: added" in done.output
    assert parse_yaml(file.read_text()) == parse_yaml(whole)
    lines = file.read_text().splitlines()
    heading = lines.index("# The local loop, once per client and stage.")
    assert lines[heading + 1] == "train:"  # the heading of what follows is still above it
    assert [line for line in lines if line.startswith("#")] == [x for x in whole.splitlines() if x.startswith("#")]
    again = run("settings", "--out", file, "--preset", "demo")
    assert again.exit_code == 0 and "added" not in again.output and file.read_text().splitlines() == lines


def test_new_sections_are_written_where_the_schema_has_them(tmp_path):
    whole = (ROOT / "params.yaml").read_text()
    file = tmp_path / "params.yaml"
    gone = ("  name: mean\n", "  multi_krum:\n    byzantine: 1\n    selected: null\n", "  client_transforms: []\n")
    file.write_text(without(whole, *gone))
    assert run("settings", "--out", file, "--preset", "demo").exit_code == 0
    written, wanted = parse_yaml(file.read_text()), parse_yaml(whole)
    assert written == wanted and list(written["aggregation"]) == list(wanted["aggregation"])
    assert [line for line in file.read_text().splitlines() if line] == [line for line in whole.splitlines() if line]


@pytest.mark.parametrize("heading", ["", "# about b\n"])
def test_a_first_key_is_not_put_between_a_comment_and_what_it_is_about(tmp_path, heading):
    file = tmp_path / "params.yaml"
    file.write_text(f"{heading}b: 1\n# about c\nc: 1\n")
    write_params(file, {"a": 0, "bb": 2, "unknown": 3}, create=True, order=dict.fromkeys(("a", "b", "bb", "c")))
    first, last = ("", "a: 0\n") if heading else ("a: 0\n", "")
    assert file.read_text() == f"{first}{heading}b: 1\nbb: 2\n# about c\nc: 1\n{last}unknown: 3\n"


def test_a_short_file_is_completed_and_keeps_its_values(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("# my run\ntrain: {lr: 0.004}  # found by trial\n")
    assert run("settings", "--params", file, "--out", file).exit_code == 0
    text = file.read_text()
    assert text.startswith("# my run\ntrain: {lr: 0.004") and "# found by trial" in text
    written = parse_yaml(text)
    assert flat(as_values(Settings())).keys() == flat(written).keys() and written["train"]["lr"] == 0.004


def test_a_changed_value_adds_no_other_keys(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text("seed: 3\n")
    assert write_settings(file, load_settings(file, (), ["train.lr=0.01"])) == ["train.lr: 0.0005 -> 0.01"]
    assert parse_yaml(file.read_text()) == {"seed": 3, "train": {"lr": 0.01}}


@pytest.mark.parametrize("last", ["b: 1", "b: 1  # remark", "b: {x: 1}", "b:\n  - 1\n  - 2", "b:\n    c: 1"])
def test_an_added_key_is_written_above_the_heading_of_the_next_section(tmp_path, last):
    file = tmp_path / "params.yaml"
    file.write_text(f"one:\n  {last}\n\n# heading of two\ntwo:\n  x: 1\n# the end\n")
    write_params(file, {"one.new.deep": 5, "two.y": 6}, create=True)
    assert "\n  new:\n    deep: 5\n\n# heading of two\ntwo:\n  x: 1\n  y: 6\n# the end\n" in file.read_text()
    assert file.read_text().startswith(f"one:\n  {last.splitlines()[0]}\n")


LAST = ["b: 1", "b: 1  # remark", "b: [1, 2]", "b: {}", "b:\n  - 1\n  - 2  # remark", "b:\n    c:\n    - 1\n    - d: 2"]


@pytest.mark.parametrize("value", [7, None, "two\nlines\n", [], [3, 4], [[1], [2]], {}, {"k": 5}, {"k": [5]}], ids=repr)
@pytest.mark.parametrize("last", [*LAST, "b:\n    # why\n    c: 1", "b:  # remark\n  # why\n  - 1"])
@pytest.mark.parametrize("key", ["b", "new"])
def test_a_written_value_of_any_kind_keeps_the_heading_below_it(tmp_path, last, value, key):
    file = tmp_path / "params.yaml"
    file.write_text(f"one:\n  {last}\n\n# heading of two\ntwo:\n  x: 1\n# the end\n")
    before = parse_yaml(file.read_text())
    write_params(file, {f"one.{key}": value}, create=True)
    text = file.read_text()
    assert text.endswith("\n\n# heading of two\ntwo:\n  x: 1\n# the end\n")
    assert parse_yaml(text) == before | {"one": before["one"] | {key: value}}
    assert ("# why" in text) == ("# why" in last)


def test_a_changed_list_at_the_end_of_a_section_keeps_the_heading_below_it(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text((ROOT / "params.yaml").read_text())
    lines = file.read_text().splitlines()
    heading = lines.index("objective:") - 1
    assert lines[heading].startswith("# ")
    write_settings(file, load_settings(file, (), ["model.mlp.hidden=[8]"]))
    assert file.read_text().splitlines()[heading - 4 :] == ["    hidden:", "    - 8", "", *lines[heading:]]
