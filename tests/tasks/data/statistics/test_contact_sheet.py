"""Contact sheets, the choice of sample images, and ``fedscene data show``."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from flows.cli import show
from flows.cli.main import app
from tasks.data.dataset import load_dataset
from tasks.data.statistics.contact_sheet import caption_lines, contact_sheet, every_label_first, sample_sheet


def _pixels(path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.figures
def test_a_small_image_is_enlarged_pixel_by_pixel(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (3, 64, 64), dtype=np.uint8)
    contact_sheet(image[None], ["one"], "title", tmp_path / "a.png")
    tile = image.transpose(1, 2, 0).repeat(3, axis=0).repeat(3, axis=1)
    assert (_pixels(tmp_path / "a.png")[56 : 56 + 192, 24 : 24 + 192] == tile).all()


@pytest.mark.figures
def test_images_of_all_shapes_and_a_missing_one_are_placed_in_their_tiles(tmp_path):
    shapes = [(1, 1, 3), (5, 9), (300, 100, 3), (3, 4000, 3), (100, 100, 3)]
    images = [np.full(shape, 90, np.uint8) for shape in shapes] + [None]
    contact_sheet(iter(images), ["$a$ $", "b\nc", "", "d", "e", "reason: truncated"], "$ and $", tmp_path / "a.png")
    pixels = _pixels(tmp_path / "a.png")
    widths = []
    for number in range(len(shapes)):
        left = 24 + number * 210
        filled = (pixels[56 : 56 + 192, left : left + 192] == 90).all(axis=2)
        widths.append((int(filled.any(axis=1).sum()), int(filled.any(axis=0).sum())))
    assert widths == [(192, 192), (105, 189), (192, 64), (1, 192), (192, 192)]


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize(("count", "tiles"), [(0, 0), (1, 1), (9, 9), (500, 120)])
def test_the_size_of_a_contact_sheet_is_bounded(tmp_path, count, tiles):
    contact_sheet(np.zeros((count, 3, 8, 8), np.uint8), ["x"] * count, "many", tmp_path / "a.png")
    pixels = _pixels(tmp_path / "a.png")
    assert pixels.shape[1] <= 1728
    assert pixels.shape[0] <= 4400
    black = (pixels == 0).all(axis=2)
    assert black[56:].sum() >= tiles * 192 * 192
    assert black[56:].sum() < (tiles + 1) * 192 * 192


@pytest.mark.parametrize(
    ("caption", "lines"),
    [
        ("crack, rust\nfile.png", ["crack, rust", "file.png"]),
        ("a" * 30, ["a" * 27, "aaa"]),
        ("word " + "b" * 26, ["word", "b" * 26]),
        ("破" * 14, ["破" * 13, "破"]),
        ("1\n2\n3\n4\n5", ["1", "2", "3", "4…"]),
        ("$x$", [r"\$x\$"]),
        ("", []),
    ],
)
def test_captions_are_broken_into_lines(caption, lines):
    assert caption_lines(caption) == lines


def test_every_label_is_shown_the_rarest_first():
    rng = np.random.default_rng(0)
    targets = np.zeros((500, 10), np.uint8)
    for label in range(10):  # label c is on 2^c images or so
        targets[rng.choice(500, min(400, 2**label), replace=False), label] = 1
    rows = every_label_first(targets, 40, np.random.default_rng(1))
    assert len(set(rows.tolist())) == 40
    assert targets[rows].any(axis=0).all()
    few = every_label_first(targets, 3, np.random.default_rng(1))
    assert targets[few, :3].any(axis=0).all()
    assert (few == rows[:3]).all()
    assert sorted(every_label_first(targets[:5], 40, rng).tolist()) == [0, 1, 2, 3, 4]
    assert (every_label_first(targets, 40, np.random.default_rng(1)) == rows).all()
    assert (every_label_first(targets, 40, np.random.default_rng(2)) != rows).any()


@pytest.mark.figures
def test_the_contact_sheet_of_a_site_depends_on_seed_and_site(tiny_data, tmp_path):
    dataset = load_dataset(tiny_data.dataset)
    first, second = sorted(set(dataset.sites.tolist()))[:2]
    for name, site, seed in (("a", first, 0), ("b", first, 0), ("c", first, 1), ("d", second, 0)):
        sample_sheet(dataset, site, 4, seed, tmp_path / f"{name}.png")
    seen = [(tmp_path / f"{name}.png").read_bytes() for name in "abcd"]
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


@pytest.fixture
def root(tiny_data, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset").symlink_to(tiny_data.dataset)
    return tmp_path / "data"


def _show(*arguments: str):
    return CliRunner().invoke(app, ["data", "show", *arguments])


def test_show_by_site_before_a_partition_and_by_client_after(root, tiny_data):
    before = _show("--root", str(root), "--per-site", "5")
    assert before.exit_code == 0, before.output
    assert "How the sites differ" in before.stdout
    assert "client" not in before.stdout
    sites = sorted(set(load_dataset(tiny_data.dataset).sites.tolist()))
    assert sorted(path.name for path in (root / "sheets").glob("*.png")) == [f"{site}.png" for site in sites]
    assert (root / "sheets" / "by-site" / "cooccurrence.png").is_file()
    (root / "clients").symlink_to(tiny_data.clients)
    after = _show("--root", str(root), "--json", "--site", sites[0], "--sheets", str(root / "other"))
    found = json.loads(after.stdout)
    assert list(found["sheets"]) == [sites[0]]
    assert (root / "other" / f"{sites[0]}.png").is_file()
    assert set(found["partition"]["clients"]) == set(tiny_data.ids)
    assert set(found["sites"]["clients"]) == set(sites)
    assert "images with each label, by client" in _show("--root", str(root)).stdout.lower()


def test_show_refuses_unknown_sites_and_missing_data(root):
    done = _show("--root", str(root), "--site", "no-such-site")
    assert done.exit_code == 2
    assert "no-such-site" in done.stderr
    assert _show("--root", str(root / "none")).exit_code == 2


def test_show_opens_the_contact_sheets_only_with_the_option(root, monkeypatch):
    opened = []
    monkeypatch.setattr(show.typer, "launch", lambda target: opened.append(target) or 0)
    assert _show("--root", str(root)).exit_code == 0
    assert opened == []
    _show("--root", str(root), "--open")
    assert opened == [str(root / "sheets" / f"site-{number}.png") for number in (1, 2, 3)]


def test_the_terminal_table_of_many_clients_is_bounded(capsys):
    from tasks.data.statistics.heterogeneity import statistics

    rng = np.random.default_rng(0)
    owners = np.array([f"client-{number:03d}" for number in rng.permutation(1000) % 100])
    targets = (rng.random((1000, 30)) < 0.2).astype(np.uint8)
    figures = statistics(targets, owners, sorted(set(owners.tolist())), [f"label {c}" for c in range(30)])
    show.show_differences(figures, "client", show.Console(width=120))
    out = capsys.readouterr().out.splitlines()
    assert len(out) < 90
    assert max(map(len, out)) <= 120
    farthest = max(figures["clients"], key=lambda client: figures["clients"][client]["js_distance"])
    assert next(line for line in out if "client-" in line).split()[0] == farthest


@pytest.mark.parametrize("site", ["../up", "a/b", ".hidden", "", "x" * 300, "a b"])
def test_sites_become_safe_and_different_file_names(site):
    name = show.file_name(site)
    assert name != show.file_name(site + "?")
    assert len(name) < 80
    assert not set(name) & set("/\\ ")
    assert not name.startswith(".")


def test_a_plain_site_keeps_its_name():
    assert show.file_name("site-1") == "site-1"
    assert show.file_name("北站_2") == "北站_2"
