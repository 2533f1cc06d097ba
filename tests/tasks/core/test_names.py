"""Names from outside: as file names, as parts of metrics' names, on display; and the store's own refusal."""

import re
import unicodedata
import uuid

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.errors import UserError
from tasks.core.names import file_name, metric_part, metric_parts, visible
from tasks.core.records import ModelRef
from tasks.core.store import Store, client_folder

HOSTILE = (
    "", " ", ".", "..", "...", "../../../tmp/escape", "/var/abs", "plant A/line 1", "plant A\\line 1", "C:\\Windows",
    "c:nul", "~", "~root", "-rf", "--", ".hidden", "trailing.", "trailing ", "a..b", "CON", "con", "nul.txt", "COM1",
    "com¹", "lpt9.tar.gz", "x" * 300, "工" * 100, "😀" * 80, "a\nb", "a\tb", "a\x00", "a", "a\x1b[31m", "\u202egnp.exe",
    "a\u200bb", "👩\u200d🔬", "é", "e\u0301", "É", "A", "ä", "Ä", "*", "?", "[ab]", "[red]", "$x$", "a|b", "a%2fb",
    "a:b", "a::b", "\u13a0", "memory://x", "s3://bucket/x", "İ", "ß", "SS", "\ud800", "clients", "a.tmp", "한국", "אבג",
)  # fmt: skip
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
PLAIN = ["client-003", "site_1", "a", "0", "v1.2", "tar.gz", "北站_2", "a-b", "x" * 100, "common", "console"]


def is_safe(name):
    """Whether any usual file system takes the name as it is, and shows it as it is."""
    return (
        0 < len(name.encode()) <= 200
        and all(c.isalnum() or c in "-_." for c in name)
        and name[0] not in ".-" and name[-1] != "." and ".." not in name
        and name.split(".")[0] not in RESERVED
        and name == name.lower() == unicodedata.normalize("NFC", name)
        and {unicodedata.bidirectional(c) for c in name} <= {"L", "EN", "ES", "CS", "ON"}
    )  # fmt: skip


def every_text(test):
    for name in HOSTILE:
        test = example(name)(test)
    return settings(max_examples=200, deadline=None)(given(st.text(st.characters(), max_size=40))(test))


@every_text
def test_any_text_becomes_a_safe_file_name(text):
    name = file_name(text)
    assert is_safe(name), name
    assert file_name(name) != name or name == text  # what an escaped name looks like is never left as it is


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_name_stays(name):
    assert file_name(name) == name and client_folder(name) == f"clients/{name}"


def test_names_differ_on_disks_without_case_or_with_another_unicode_form():
    texts = [*HOSTILE, *PLAIN, *map(file_name, HOSTILE), *(text + "/" for text in HOSTILE)]
    folded = {unicodedata.normalize(form, file_name(t)).casefold() for t in set(texts) for form in ("NFC", "NFKD")}
    assert len(folded) == len(set(texts))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("aA-_./\\ é\u0301", max_size=4), unique=True, min_size=2, max_size=30))
def test_nearly_equal_names_stay_apart(texts):
    assert len({file_name(text).casefold() for text in texts}) == len(texts)
    parts = metric_parts(texts)
    assert len({unicodedata.normalize("NFC", part).casefold() for part in parts.values()}) == len(texts)


@pytest.mark.parametrize(
    ("text", "begin"),
    [("plant A/line 1", "plant_a_line_1-"), ("../../tmp", "tmp-"), ("Ölspur", "olspur-"), ("北站 2", "北站_2-")],
)
def test_an_escaped_name_can_be_read(text, begin):
    assert re.fullmatch(re.escape(begin) + "[0-9a-f]{26}", file_name(text))


@every_text
def test_any_text_becomes_a_part_of_a_metrics_name(text):
    part = metric_part(text)
    assert re.fullmatch(r"[\w\-. ]{1,100}", part) and part.strip(".") and part == part.strip()


def test_metric_parts_stay_apart_and_plain_ones_stay():
    assert metric_part("Open Storage, yard".replace(",", "")) == "Open Storage yard" and metric_part("飞机") == "飞机"
    for one, other in (("a/b", "a_b"), ("a/b", "a|b"), ("x" * 300, "x" * 301), ("a ", "a"), ("..", ".")):
        assert metric_part(one) != metric_part(other)
    assert metric_part(metric_part("a/b")) != metric_part("a/b")
    parts = metric_parts(["Rust", "rust", "crack", "é", "e"])
    assert parts["crack"] == "crack" and len({part.casefold() for part in parts.values()}) == 5
    assert parts["Rust"].startswith("Rust-") and parts["rust"].startswith("rust-")


def test_what_cannot_be_seen_is_shown():
    assert visible("a\u202eb\n\x1b[31m") == "a\\u202eb\\n\\x1b[31m" and visible("北站 Ö 😀") == "北站 Ö 😀"


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path):
    yield Store(tmp_path / "inner" / "run") if request.param == "disk" else Store(f"memory://{uuid.uuid4()}/run")


OUTSIDE = ["../x", "a/../../x", "/var/x", "a//b", "a/./b", "..", ".", "a/..", "C:/x", "a\\..\\x", "a\x00b", "s3://x/y"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_store_refuses_a_name_that_leads_out_of_its_root(store, name):
    store.write_bytes("a/inside", b"1")
    ref = ModelRef(name, "0" * 64, 1)
    for act in (
        lambda: store.path(name), lambda: store.exists(name), lambda: store.names(name), lambda: store.delete(name),
        lambda: store.write_bytes(name, b"1"), lambda: store.write_json(name, {}), lambda: store.read_json(name),
        lambda: store.put_state(name, {}), lambda: store.get_state(ref), lambda: store.holds(ref),
        lambda: store.finish_folder("a", name), lambda: store.finish_folder(name, "b"),
    ):  # fmt: skip
        with pytest.raises(UserError, match="leads out of the run's folder"):
            act()
    assert store.names("a") == ["inside"] and store.names("") == ["a"]


def test_the_store_refuses_a_link_that_leads_out_of_its_root(tmp_path):
    store, outside = Store(tmp_path / "run"), tmp_path / "outside"
    outside.mkdir()
    (outside / "x.json").write_text("{}")
    store.write_json("real/x.json", {"own": 1})
    (tmp_path / "run/clients").symlink_to(outside)
    (tmp_path / "run/y.json").symlink_to(outside / "x.json")
    (tmp_path / "run/within").symlink_to("real")
    (tmp_path / "run/circle").symlink_to("circle")
    before = (outside / "x.json").stat()
    for act in (
        lambda: store.write_json("clients/x.json", {"a": 1}), lambda: store.read_json("clients/x.json"),
        lambda: store.delete("clients/x.json"), lambda: store.names("clients"), lambda: store.read_json("y.json"),
    ):  # fmt: skip
        with pytest.raises(UserError, match="leads out of the run's folder"):
            act()
    assert store.read_json("within/x.json") == {"own": 1} and not store.exists("circle/x")
    store.write_json("y.json", {"new": 1})  # a link is replaced, never written through
    store.delete("clients")
    assert store.read_json("y.json") == {"new": 1} and not (tmp_path / "run/clients").is_symlink()
    assert (outside / "x.json").read_text() == "{}" and (outside / "x.json").stat().st_mtime_ns == before.st_mtime_ns


def test_dvc_may_link_files_of_its_outputs_to_its_cache(tmp_path):
    (tmp_path / "cache").write_text('{"a": 1}')
    (tmp_path / "out").mkdir()
    (tmp_path / "out/model.json").symlink_to(tmp_path / "cache")
    assert Store(tmp_path / "out", linked_files=True).read_json("model.json") == {"a": 1}


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_deleting_takes_no_name_for_a_pattern(tmp_path, place):
    store = Store(tmp_path / "runs[1]*" if place == "disk" else f"memory://{uuid.uuid4()}[1]*/run")
    for name in ("clients/a", "clients/b", "clients/*", "clients/[ab]"):
        store.write_bytes(name, b"1")
    store.delete("clients/*")
    store.delete("clients/[ab]")
    assert store.names("clients") == ["a", "b"]
    store.write_bytes("rounds/.1/x", b"1")
    store.finish_folder("rounds/.1", "rounds/1")
    assert store.names("rounds") == ["1"] and store.names("rounds/1") == ["x"]


def test_params_of_names_from_outside_stay_apart():
    from tasks.tracking.tags import plan_params

    aliases = {"a/b": "x", "a_b": "y", "A_b": "z", "r" * 300: "w"}
    values, _ = plan_params({f"ingest.label_aliases.{found}": meant for found, meant in aliases.items()}, {}, {})
    assert sorted(values.values()) == ["w", "x", "y", "z"] and all(len(key) <= 250 for key in values)
    assert len({key.casefold() for key in values}) == 4
