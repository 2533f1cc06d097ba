"""YAML text: the dialect that is read, what is refused and how, and that what is written is read again."""

import pytest

from tasks.core.yaml_text import YamlTextError, dump_yaml, parse_yaml, parse_yaml_as_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("# nothing but a comment", None),
        ("007", 7),
        ("1_000", 1000),
        ("1.0", 1.0),
        ("1.5e+3", 1500.0),
        ("1e3", "1e3"),
        ("1e-3", "1e-3"),
        ("1.5e3", "1.5e3"),
        ("y", "y"),
        ("N", "N"),
        ("{a: {b: [1, x]}}", {"a": {"b": [1, "x"]}}),
        ("{<<: {a: 1}, a: 2}", {"a": 2}),
        (b"\xef\xbb\xbfa: 1", {"a": 1}),
    ],
)
def test_values_are_those_of_yaml_1_1(text, value):
    found = parse_yaml(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 'found duplicate key "a", line 3'),
        ("x:\n  a: 1\n  a: 1\n", 'found duplicate key "a", line 3'),
        ("a: [1\n", "line 1"),
        ("a: b: c", "mapping values are not allowed here"),
        ("!x y", "!x"),
        ("!!int x", "invalid literal"),
        ("--- a\n--- b", "expected a single document"),
        ("\0", "#x0000"),
        ("[" * 5000, "recursion"),
    ],
)
def test_text_that_is_not_yaml_is_refused_with_place_and_reason(text, message):
    with pytest.raises(YamlTextError) as caught:
        parse_yaml(text)
    assert message in str(caught.value)
    assert "suppress" not in str(caught.value)


def test_the_last_of_two_equal_keys_counts_where_that_is_asked_for():
    assert parse_yaml("a: 1\na: 2", unique_keys=False) == {"a": 2}


def test_values_as_text_are_as_they_are_written():
    assert parse_yaml_as_text("names: [007, yes, ~, 1.0]") == {"names": ["007", "yes", "~", "1.0"]}
    assert parse_yaml_as_text("names: {0: 007, 1: no}") == {"names": {"0": "007", "1": "no"}}


@pytest.mark.parametrize("word", ["yes", "n", "007", "1e3", "null", "", "é", "a: b", "#", "2024-01-01", "1.0", "x\ny"])
def test_what_is_written_is_read_again(word):
    value = {"b": word, "a": [word, {word: None}], "c": {}, "d": [], "e": 1e-05, "f": True}
    text = dump_yaml(value)
    assert parse_yaml(text) == value
    assert text.startswith("b:") and "%YAML" not in text
