"""JSON files: one text for what is wrong with them."""

import math

import pytest

from models.errors import UserError
from tasks.core.json_files import parse_json, read_json, to_json_values, write_json


def test_a_written_value_is_read_again(tmp_path):
    write_json(tmp_path / "new" / "a.json", {"größe": [1, 2.5, None]})
    assert read_json(tmp_path / "new" / "a.json") == {"größe": [1, 2.5, None]}
    assert "größe" in (tmp_path / "new" / "a.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"{", "Expecting"),
        (b"\xff", "utf-8"),
        (b"[" * 100_000, "recursion"),
        (b"[1]", "a list instead of a dict"),
    ],
)
def test_damaged_content_is_an_error_with_a_hint(content, found):
    with pytest.raises(UserError, match="a record is damaged") as caught:
        parse_json(content, "a.json", "remove it", what="a record")
    assert found in str(caught.value.found) and caught.value.hint == "remove it"


def test_a_missing_file_and_one_of_a_later_release_are_errors(tmp_path):
    with pytest.raises(UserError, match="a file of the data is missing"):
        read_json(tmp_path / "a.json")
    write_json(tmp_path / "a.json", {"version": 10_000})
    with pytest.raises(UserError, match="later release"):
        read_json(tmp_path / "a.json")


def test_values_that_json_cannot_hold_become_null_lists_and_texts():
    assert to_json_values({1: (math.nan, math.inf, 0.5)}) == {"1": [None, None, 0.5]}
