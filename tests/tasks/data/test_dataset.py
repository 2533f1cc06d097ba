"""Changed or damaged data on disk is refused with the file's name."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from models.errors import UserError
from tasks.data.clients import load_clients
from tasks.data.dataset import load_dataset


@pytest.fixture
def data(tiny_data, tmp_path):
    shutil.copytree(tiny_data.dataset, tmp_path / "dataset")
    shutil.copytree(tiny_data.clients, tmp_path / "clients")
    return tmp_path


def refused(load, folder, name):
    with pytest.raises(UserError, match="damaged") as caught:
        load(folder)
    assert name in str(caught.value.where)
    assert "make the data again (fedscene data " in str(caught.value.hint)


def change(path, column, value):
    """Change the values of a column of a Parquet file."""
    table = pq.read_table(path)
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, pa.array(value(table[column].to_pylist()))), path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dataset.json", "[]"),
        ("dataset.json", "[" * 100_000),
        ("dataset.json", '{"digest": 3}'),
        ("dataset.json", '{"digest": "without the labels\' digest"}'),
        ("classes.json", "{}"),
        ("classes.json", "[{}]"),
        ("classes.json", '["\\ud800"]'),
        ("images.npy", ""),
    ],
)
def test_damaged_files_of_a_data_set_are_refused(data, name, text):
    (data / "dataset" / name).write_text(text)
    refused(load_dataset, data / "dataset", "samples.parquet" if "ud800" in text else name)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("labels", lambda old: [None, *old[1:]]),
        ("labels", lambda old: [[], *old[1:]] if old[0] else [old[1], *old[1:]]),
        ("labels", lambda old: list(range(len(old)))),
        ("site", lambda old: [b"\xff"] * len(old)),
        ("split", lambda old: ["test" if split == "val" else split for split in old]),
        ("source", lambda old: ["another.jpg", *old[1:]]),
    ],
)
def test_changed_samples_are_refused(data, column, value):
    change(data / "dataset/samples.parquet", column, value)
    refused(load_dataset, data / "dataset", "samples.parquet")


def test_classes_in_another_order_are_refused(data):
    path = data / "dataset/classes.json"
    path.write_text(json.dumps(json.loads(path.read_text())[::-1]))
    refused(load_dataset, data / "dataset", "samples.parquet")


@pytest.mark.parametrize(
    "changes",
    [{"dataset_digest": 3}, {"digest": None}, {"clients": []}, {"clients": {"a": 1}}, {"clients": {}}, {"scheme": 1}],
)
def test_damaged_summaries_of_clients_are_refused(data, changes):
    path = data / "clients/clients.json"
    shutil.copy(path, data / "intact.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match="damaged"):
        load_clients(data / "clients")
    summary = json.loads((data / "intact.json").read_text())
    next(iter(summary["clients"].values()))["labels"].popitem()
    path.write_text(json.dumps(summary))
    refused(load_clients, data / "clients", "clients.json")
    path.write_text("[]")
    refused(load_clients, data / "clients", "clients.json")


@pytest.mark.parametrize("value", [lambda old: ["x"] * len(old), lambda old: [None, *old[1:]], lambda old: old[::-1]])
def test_damaged_tables_of_clients_are_refused(data, value):
    change(data / "clients/clients.parquet", "index", value)
    refused(load_clients, data / "clients", "clients.parquet")


def test_names_that_resemble_markup_are_shown_literally(data, capsys):
    from flows.cli.show import show_differences

    summary = load_clients(data / "clients").summary
    names = dict(zip(summary["clients"], ["[/]", "[red]north[/red]", ":bug: \\", "d"], strict=True))
    labels = dict(zip(next(iter(summary["clients"].values()))["labels"], ["[bold]", "[/x]", ":dog:"], strict=False))
    clients = {
        names[client]: entry | {"labels": {labels.get(name, name): n for name, n in entry["labels"].items()}}
        for client, entry in summary["clients"].items()
    }
    show_differences(summary | {"clients": clients}, "client", Console(width=200))
    shown = capsys.readouterr().out
    assert all(name in shown for name in [*names.values(), *labels.values()])
