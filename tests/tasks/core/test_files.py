"""Files are replaced as a whole; a link into another store, such as DVC's cache, is never written through."""

import os
import stat
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from flows.settings.files import load_settings
from flows.settings.params_file import write_settings
from models.errors import UserError
from tasks.versioning import dvc
from tests.support.fabricated import fabricated_run

KEPT = b"seed: 3  # held by the store\n"
PARAMS = "seed: 3\ntrain:\n  lr: 0.1\n"


def link(kind: str, store: Path, place: Path) -> Path:
    """A file of a store, read-only as in DVC's cache, that stands at ``place`` as well."""
    store.parent.mkdir(parents=True, exist_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(KEPT)
    store.chmod(0o444)
    if kind == "hard":
        os.link(store, place)
    else:
        place.symlink_to(store)
    return store


def held(store: Path, place: Path) -> None:
    """The store's file is untouched, and the file at the place is another one."""
    assert store.read_bytes() == KEPT and stat.S_IMODE(store.stat().st_mode) == 0o444
    assert not place.is_symlink() and place.read_bytes() != KEPT
    assert place.stat().st_ino != store.stat().st_ino and place.stat().st_mode & stat.S_IWUSR


def _report(folder: Path) -> list[str]:
    from tasks.report.report import build_report

    fabricated_run(folder / "run", 1)
    build_report(folder / "run", folder)
    names = ["report.md", "metrics.json", "rounds.csv", "plots/learning-curve.png", "plots/traffic.png"]
    return [name for name in names if (folder / name).is_file()]


def _partition_figures(folder: Path) -> list[str]:
    from tasks.data.statistics.plots import write_partition_figures

    owners = np.array(["a", "b", "a", "b"])
    write_partition_figures(np.array([[1, 1], [0, 1], [1, 0], [0, 0]]), owners, ["a", "b"], ["x", "y"], folder)
    return ["heterogeneity.md", "heterogeneity.json", "label_client.png", "client_sizes.png", "cooccurrence.png"]


def _data_tables(folder: Path) -> list[str]:
    from tasks.core.json_files import write_json
    from tasks.data.dataset import write_samples
    from tasks.data.ingest.manifest import write_manifest

    write_json(folder / "dataset.json", {"a": 1})
    write_samples([], folder / "samples.parquet")
    write_manifest([], folder / "manifest.parquet")
    return ["dataset.json", "samples.parquet", "manifest.parquet"]


def _label_file(folder: Path) -> list[str]:
    import torch

    from models.label_aware.label_embeddings import write_label_file

    write_label_file(folder / "l.safetensors", ["a", "b"], torch.eye(2))
    return ["l.safetensors"]


def _run_records(folder: Path) -> list[str]:
    from tasks.core.store import Store

    Store(folder).write_json("model/model.json", {"a": 1})
    return ["model/model.json"]


WRITERS = [_report, _partition_figures, _data_tables, _label_file, _run_records]


@pytest.mark.parametrize("write", WRITERS)
def test_no_writer_writes_through_a_link(tmp_path, write):
    names = write(tmp_path / "fresh")
    assert names
    stores = {}
    for name, kind in zip(names, cycle(("hard", "symbolic"))):
        stores[name] = link(kind, tmp_path / "store" / name, tmp_path / "place" / name)
    write(tmp_path / "place")
    for name, store in stores.items():
        held(store, tmp_path / "place" / name)
        assert (tmp_path / "place" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("kind", ["hard", "symbolic"])
def test_settings_are_not_written_through_a_link_into_a_store(tmp_path, kind):
    store = link(kind, tmp_path / "store" / "p", tmp_path / "params.yaml")
    assert dvc.write_params(tmp_path / "params.yaml", {"seed": 4})
    held(store, tmp_path / "params.yaml")


def test_settings_behind_a_users_link_are_edited_in_place_and_keep_their_permissions(tmp_path):
    (tmp_path / "own").mkdir()
    own, place = tmp_path / "own" / "p.yaml", tmp_path / "params.yaml"
    own.write_text(PARAMS)
    own.chmod(0o660)
    place.symlink_to(own)
    assert dvc.write_params(place, {"train.lr": 0.2})
    assert place.is_symlink() and own.read_text() == PARAMS.replace("0.1", "0.2")
    assert stat.S_IMODE(own.stat().st_mode) == 0o660


def test_a_dangling_link_becomes_a_settings_file(tmp_path):
    (tmp_path / "params.yaml").symlink_to(tmp_path / "store" / "gone")
    assert write_settings(tmp_path / "params.yaml", load_settings(None, ["tiny"])) == []
    assert not (tmp_path / "store").exists() and not (tmp_path / "params.yaml").is_symlink()


def test_a_folder_behind_a_link_is_replaced_repeatedly(tmp_path):
    from models.files import replacing_folder

    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "mark").write_text("there")
    (tmp_path / "dataset").symlink_to(disk)
    for text in ("one", "two"):
        with replacing_folder(tmp_path / "dataset", "mark") as partial:
            (partial / "mark").write_text(text)
        assert (tmp_path / "dataset" / "mark").read_text() == text
    assert (disk / "mark").read_text() == "there" and [path.name for path in tmp_path.iterdir()].count("disk") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "disk"]


def test_a_folder_with_the_name_of_a_file_is_refused_without_leftovers(tmp_path):
    (tmp_path / "params.yaml").mkdir()
    with pytest.raises(UserError, match="missing"):
        dvc.write_params(tmp_path / "params.yaml", {"seed": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def test_an_unchanged_file_is_not_written_and_a_changed_one_is(tmp_path):
    from models.files import write_text

    file = tmp_path / "a.txt"
    write_text(file, "one")
    os.utime(file, (1, 1))
    before = file.stat()
    write_text(file, "one")
    assert (file.stat().st_ino, file.stat().st_mtime) == (before.st_ino, 1)
    for number in range(200):  # many in one tick of the clock, of one size
        write_text(file, text := f"{number % 2}{number % 3}{number % 7}")
        write_text(file, text)
        assert file.read_text() == text
