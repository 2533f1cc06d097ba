"""A single changed byte of pixels, samples, clients or decoded chunks is detected."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from models.errors import UserError
from tasks.data import dataset as dataset_module
from tasks.data.dataset import load_dataset
from tasks.data.decoding.parallel import Decoding, decode_chunk
from tasks.data.images.decode import Limits
from tasks.data.images.image import ImageFile
from tasks.data.ingest.ingest import IngestSettings, ingest


def flip(path: Path, at: int) -> None:
    """Change one byte in place."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def data(tiny_data, tmp_path):
    shutil.copytree(tiny_data.dataset, tmp_path / "dataset")
    shutil.copytree(tiny_data.clients, tmp_path / "clients")
    return tmp_path


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("at", [200, -1])
def test_a_changed_pixel_is_refused_with_both_digests(data, before, at):
    if before:  # what this process has already read does not hide it
        load_dataset(data / "dataset")
    recorded = json.loads((data / "dataset/dataset.json").read_text())["digest"]
    flip(data / "dataset/images.npy", at)
    with pytest.raises(UserError, match="damaged") as caught:
        load_dataset(data / "dataset")
    error = caught.value
    assert str(error.where).endswith("dataset/images.npy")
    assert "fedscene data ingest" in str(error.hint)
    assert recorded in str(error.expected)
    assert recorded not in str(error.found)


def test_extra_bytes_after_the_pixels_are_refused(data):
    with (data / "dataset/images.npy").open("ab") as file:
        file.write(b"more")
    with pytest.raises(UserError, match="damaged"):
        load_dataset(data / "dataset")


def test_a_new_run_on_changed_pixels_is_refused(data, monkeypatch):
    from flows.run.inputs import DataPaths
    from flows.run.open import open_run
    from flows.settings.files import load_settings

    monkeypatch.setenv("FEDSCENE_RUNS", str(data / "runs"))
    flip(data / "dataset/images.npy", 5000)
    settings = load_settings(None, ["tiny"], ["ingest.image_size=32"])
    with pytest.raises(UserError, match="damaged"), open_run(settings, DataPaths(data / "dataset", data / "clients")):
        pass
    assert not (data / "runs").exists()


def test_pixels_are_hashed_once_per_process_with_many_threads(data, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    calls = []
    digest = dataset_module.content_digest
    monkeypatch.setattr(dataset_module, "content_digest", lambda *a: calls.append(1) or digest(*a))
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda _: load_dataset(data / "dataset"), range(8)))
    assert len(calls) == 1
    assert all(one is loaded[0] for one in loaded)


def test_replacing_the_data_of_a_running_run_ends_it(data, make_run):
    from tasks.client.local_data import client_data
    from tasks.data.clients import load_clients
    from tasks.data.partition import PartitionSettings, partition

    folders = {name: str(data / name) for name in ("dataset", "clients")}
    context, _ = make_run(**folders, data_digest=load_clients(data / "clients").digest)
    client = load_clients(data / "clients").ids[0]
    images, _ = client_data(context, client)
    assert len(images) == 11
    partition(data / "dataset", PartitionSettings(scheme="iid", clients=4, min_size=4), data / "clients", seed=2)
    with pytest.raises(UserError, match="replaced while it was running"):
        client_data(context, client)


def images(folder: Path, count: int = 6) -> list[ImageFile]:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (count, 40, 40, 3), dtype=np.uint8)
    folder.mkdir()
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return [ImageFile(folder / f"{number}.png") for number in range(count)]


def damage_record(path: Path) -> None:
    path.write_text(path.read_text().replace("40, 40", "41, 40", 1))


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".json", lambda path: path.write_text("")),
        (".json", lambda path: path.write_text("{}")),
        (".json", lambda path: path.write_bytes(b"\xff\xfe")),
        (".json", damage_record),
        (".npy", lambda path: flip(path, 300)),
        (".npy", lambda path: path.write_bytes(b"")),
        (".npy", lambda path: path.unlink()),
        (".npy", lambda path: np.save(path, np.zeros((1, 3, 32, 32), np.uint8))),
    ],
)
def test_a_damaged_chunk_is_decoded_again_with_a_warning(tmp_path, caplog, suffix, damage):
    found, how = images(tmp_path / "in"), Decoding(32, Limits(), cache=tmp_path / "parts")
    how.cache.mkdir()
    first = decode_chunk(found, how, how.code(found))
    (record,) = how.cache.glob("*.json")
    pixels = np.load(record.with_suffix(".npy"))
    assert decode_chunk(found, how, how.code(found)) == first
    assert not caplog.text
    damage(record.with_suffix(suffix))
    assert decode_chunk(found, how, how.code(found)) == first
    assert "decoded again" in caplog.text
    assert record.name in caplog.text
    assert np.array_equal(np.load(record.with_suffix(".npy")), pixels)


def test_a_resumed_ingest_does_not_reuse_changed_pixels(tmp_path, monkeypatch):
    source = tmp_path / "in"
    for name in ("a", "b"):
        (source / name).parent.mkdir(exist_ok=True)
        images(source / name)
        for file in (source / name).iterdir():
            file.write_bytes(file.read_bytes() + name.encode())  # not each other's duplicates
    settings = IngestSettings(source="folder", path=source, image_size=32)
    sound = ingest(settings, tmp_path / "sound", 1)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("tasks.data.ingest.ingest.write_images", killed)
    with pytest.raises(KeyboardInterrupt):
        ingest(settings, tmp_path / "out", 1)
    monkeypatch.undo()
    (part,) = (tmp_path / ".out.parts").glob("*.npy")
    flip(part, 700)
    assert ingest(settings, tmp_path / "out", 1)["digest"] == sound["digest"]
