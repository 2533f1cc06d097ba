"""Clients by rounds as CSV and Parquet."""

import csv
import math

import pyarrow.parquet as pq

from tasks.report.client_rounds import CSV, PARQUET, write_client_rounds
from tests.support.fabricated import fabricated_record


def record(number, per_client):
    found = fabricated_record(number)
    found.per_client = per_client
    return found


def test_a_row_per_client_and_protocol_a_column_per_evaluated_round(tmp_path):
    records = [
        record(1, {"b": {"local/accuracy": 0.25, "local/images": 4.0}, "a": {"local/accuracy": math.nan}}),
        record(2, {}),  # not evaluated
        record(3, {"a": {"local/accuracy": 0.5, "matched/accuracy": 0.75}}),
    ]
    files = write_client_rounds(tmp_path, records)
    assert [file.name for file in files] == [CSV, PARQUET]
    with files[0].open() as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["protocol", "client", "accuracy, round 1", "accuracy, round 3"],
        ["local", "a", "", "0.5"],
        ["local", "b", "0.25", ""],
        ["matched", "a", "", "0.75"],
    ]
    table = pq.read_table(files[1]).to_pylist()
    assert {"round": 1, "client": "b", "protocol": "local", "accuracy": 0.25, "images": 4.0} in table
    assert {"round": 3, "client": "a", "protocol": "matched", "accuracy": 0.75, "images": None} in table
    assert len(table) == 4


def test_files_of_an_earlier_report_go_where_no_client_is_evaluated(tmp_path):
    write_client_rounds(tmp_path, [record(1, {"a": {"local/macro_ap": 0.5}})])
    assert (tmp_path / CSV).exists()
    assert write_client_rounds(tmp_path, [record(1, {})]) == []
    assert not list(tmp_path.iterdir())
