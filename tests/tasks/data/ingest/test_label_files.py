"""Words that could be misread: headings of alias files, class folders named train, YAML's yes and 007."""

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.data.ingest.audit import guess_format
from tasks.data.ingest.ingest import IngestSettings, ingest
from tasks.data.ingest.label_files import read_aliases, read_classes
from tasks.data.source.rules import NameRule, compile_rule
from tests.support.format_rows import classes_of, rows_of
from tests.support.voc_trees import encoded, make_image, put


def fill(root, *names):
    for number, name in enumerate(names):
        put(root / name, encoded(make_image(number)))
    return root


@pytest.mark.parametrize(
    "text",
    [
        "found,meant\nrusty,rust\n",
        "alias,class\nrusty,rust\n",
        "From;To\nrusty;rust\n",
        "sep=;\nold_name;new name\nrusty;rust\n",
        "Original\tTarget\nrusty\trust\n",
        "rusty,rust\n",
    ],
)
def test_the_heading_of_an_alias_file_is_no_alias(tmp_path, text):
    put(tmp_path / "a.csv", text.encode())
    assert read_aliases(tmp_path / "a.csv", "--aliases") == {"rusty": "rust"}


def test_an_unknown_heading_is_detected_by_the_classes_or_shown(tmp_path):
    put(tmp_path / "a.csv", b"befund,schaden\nrusty,rust\noily,oil\n")
    assert read_aliases(tmp_path / "a.csv", "--aliases", classes=["rust", "oil"]) == {"rusty": "rust", "oily": "oil"}
    with pytest.raises(ValueError, match=r"befund -> schaden; if it is the heading of a file, write found,meant"):
        IngestSettings(classes=["rust", "oil"], label_aliases=read_aliases(tmp_path / "a.csv", "--aliases"))
    with pytest.raises(UserError, match=r"is not a valid CSV(.|\n)*line 2"):
        put(tmp_path / "a.csv", b"found,meant\n" + b"x" * 200_000 + b",y\n")
        read_aliases(tmp_path / "a.csv", "--aliases")


def test_a_table_of_sites_in_excels_dialect_where_nan_is_no_site(tmp_path):
    put(tmp_path / "s.csv", b"sep=;\npath;name\na.png;north\nb.png;NaN\n")
    site_of = compile_rule(NameRule(rule="table", table=tmp_path / "s.csv"), "ingest.site")
    assert (site_of("a.png", {}), site_of("b.png", {})) == ("north", "")


def test_a_class_folder_without_images_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "in", *(f"{label}/{n}.png" for label in ("crack", "oil") for n in range(6)))
    (tmp_path / "in/rust").mkdir()
    for command in (["check", "in"], ["ingest", "--set", "ingest.source=folder", "--set", "ingest.path=in"]):
        result = CliRunner().invoke(app, ["data", *command])
        assert "no usable image has this label: rust" in result.output, result.output


def test_a_class_folder_named_like_a_split_needs_the_setting(tmp_path):
    root = fill(tmp_path / "in", "car/1.png", "car/2.png", "bus/3.png", "train/4.png", "train/5.png")
    assert guess_format(root)[0] == "folder"
    settings = IngestSettings.model_validate({"source": "folder", "path": root, "max_bad_share": 0.9, "image_size": 32})
    with pytest.raises(UserError, match=r"train is a class or a split(.|\n)*2 images(.|\n)*ingest\.folder\.level=1"):
        ingest(settings, tmp_path / "out", 0)
    assert classes_of("folder", root, level=1) == ["bus", "car", "train"]
    assert rows_of("folder", root, level=1)["train/4.png"].labels == ["train"]
    assert guess_format(fill(tmp_path / "two", "car/1.png", "train/2.png"))[0] == "folder"


def test_folders_read_as_splits_are_reported(tmp_path):
    name, why = guess_format(fill(tmp_path, "train/car/1.png", "train/bus/2.png", "test/car/3.png"))
    assert name == "folder"
    assert "taken for splits (train, test)" in why or "taken for splits (test, train)" in why


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("ingest.classes=[yes, no]", ["yes, on, true", "no, off, false", "quotes"]),
        ("ingest.classes=[crack, 007]", ["the number 7", "quotes"]),
        ("ingest.classes=[1.0]", ["the number 1.0", "quotes"]),
        ("ingest.classes=[null]", ["null", "quotes"]),
        ("ingest.classes=[2024-01-01]", ["a date", '"2024-01-01"']),
        ("ingest.label_aliases={yes: no}", ["yes, on, true", "quotes"]),
        ("ingest.table.labels=no", ["no, off, false", "quotes"]),
        ("ingest.site.column=12", ["the number 12", "quotes"]),
        ("ingest.path=12", ["must be a path", "quotes"]),
    ],
)
def test_unquoted_yaml_words_are_refused_as_labels(tmp_path, override, says):
    key, _, value = override.partition("=")
    section, _, field = key.removeprefix("ingest.").rpartition(".")
    inner = f"  {section}:\n    {field}: {value}\n" if section else f"  {field}: {value}\n"
    put(tmp_path / "p.yaml", f"ingest:\n{inner}".encode())
    for call in (lambda: load_settings(None, ["demo"], [override]), lambda: load_settings(tmp_path / "p.yaml")):
        with pytest.raises(UserError) as caught:
            call()
        assert all(word in str(caught.value) for word in [*says, key]), str(caught.value)


def test_quoted_words_are_text(tmp_path):
    assert load_settings(None, ["demo"], ['ingest.classes=["yes", "007"]']).ingest.classes == ["yes", "007"]
    put(tmp_path / "c.yaml", b"[yes, 'off']")  # YAML 1.2, where it is a word
    assert read_classes(tmp_path / "c.yaml", "--classes") == ["yes", "off"]
    put(tmp_path / "c.yaml", b"[rust, 2024-01-01]")
    with pytest.raises(UserError, match="quotes"):
        read_classes(tmp_path / "c.yaml", "--classes")


def test_names_of_yolo_that_look_like_numbers_stay_as_written(tmp_path):
    fill(tmp_path, "images/a.png")
    put(tmp_path / "labels/a.txt", b"1 0.5 0.5 0.2 0.2\n")
    for text in (b"names: [1.0, 007]", b"names: {0: 1.0, 1: 007}", b"names:\n  0: 1.0\n  1: 007\n"):
        put(tmp_path / "data.yaml", text)
        assert rows_of("yolo", tmp_path)["images/a.png"].labels == ["007"]
    for text in (b"names: [a, yes]", b"names: [a, ~]", b"names: [a, 2024-01-01]"):
        put(tmp_path / "data.yaml", text)
        with pytest.raises(UserError, match="quotes"):
            rows_of("yolo", tmp_path)
