"""The single-label synthetic data sets ``scrap`` and ``scenes``."""

from dataclasses import replace
from itertools import combinations
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from models.errors import UserError
from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic import scenes, scrap
from tasks.data.formats.synthetic.scrap_pieces import PIECES
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.single_canvas import CRUMPLED, SMOOTH, Canvas, textures
from tasks.data.formats.synthetic.sites import SiteLook, site_counts, site_look

SITES = [f"site-{number}" for number in range(1, 7)]
DEFAULT = SyntheticSettings()
PLAIN = SyntheticSettings(site_shift=0)
both = pytest.mark.parametrize("module", [scrap, scenes], ids=["scrap", "scenes"])


@both
def test_every_image_has_one_label_and_the_classes_are_mixed_as_planted(module: ModuleType) -> None:
    for site in SITES[:3]:
        labels = module.SET.sample_labels(DEFAULT, 0, site, 4000)
        assert labels.dtype == np.uint8
        assert (labels.sum(1) == 1).all()
        expected = module.SET.prevalences(DEFAULT, site) * len(labels)
        chi_square = (np.square(labels.sum(0) - expected) / expected).sum()
        assert chi_square < 20.5  # 0.999 quantile of chi-square with 5 degrees of freedom


@both
def test_mixtures_are_shares_and_move_with_site_prevalence(module: ModuleType) -> None:
    shared = module.SET.prevalences(SyntheticSettings(site_prevalence=0), SITES[0])
    for site in SITES:
        own, half = (module.SET.prevalences(SyntheticSettings(site_prevalence=away), site) for away in (1.0, 0.5))
        for mixture in (shared, own, half):
            assert mixture.sum() == pytest.approx(1)
            assert mixture.min() > 0.03
        assert np.array_equal(module.SET.prevalences(SyntheticSettings(site_prevalence=0), site), shared)
        assert half == pytest.approx((shared + own) / 2)
        # Without site_prevalence, site_correlation applies.
        assert module.SET.prevalences(SyntheticSettings(site_correlation=0.5), site) == pytest.approx(half)
        assert module.SET.prevalences(
            SyntheticSettings(site_correlation=0.5, site_prevalence=1.0), site
        ) == pytest.approx(own)


@both
def test_sites_of_a_group_are_nearer_than_those_of_different_groups(module: ModuleType) -> None:
    assert [module.SET.site_group(DEFAULT, site) for site in SITES] == [0, 1, 2, 0, 1, 2]
    mixtures = [module.SET.prevalences(DEFAULT, site) for site in SITES]
    distance = {(i, j): np.abs(mixtures[i] - mixtures[j]).sum() / 2 for i, j in combinations(range(6), 2)}
    same = [distance[pair] for pair in ((0, 3), (1, 4), (2, 5))]
    # Between the two specialised groups more than two fifths of the images would have to change class.
    assert max(same) < 0.25 < 0.4 < min(distance[pair] for pair in ((1, 2), (1, 5), (2, 4), (4, 5)))


@both
def test_an_image_depends_on_seed_site_and_number_only(module: ModuleType) -> None:
    few, many = SyntheticSettings(images=8, sites=2), SyntheticSettings(images=500, sites=5)
    assert sum(site_counts(few).values()) == 8
    labels = module.SET.sample_labels(few, 3, "site-2", 30)
    assert np.array_equal(labels, module.SET.sample_labels(many, 3, "site-2", 200)[:30])
    assert not np.array_equal(labels, module.SET.sample_labels(few, 4, "site-2", 30))
    late = module.SET.render(many, 3, "site-2", 7, 32)
    images = [module.SET.render(few, 3, "site-2", number, 32) for number in range(8)]
    assert (late.shape, late.dtype) == ((32, 32, 3), np.uint8)
    assert np.array_equal(late, images[7])
    assert len({image.tobytes() for image in images}) == 8
    assert not np.array_equal(late, module.SET.render(few, 4, "site-2", 7, 32))
    assert not np.array_equal(late, module.SET.render(few, 3, "site-1", 7, 32))


@both
def test_classes_differ_visibly_and_render_at_any_size(module: ModuleType) -> None:
    look = site_look(PLAIN, "site-1")
    for number in range(3):
        images = [
            np.asarray(module.paint(name, look, numpy_generator(number, "test"), 128)) for name in module.SET.classes
        ]
        for a, b in combinations(images, 2):
            assert (np.abs(a.astype(int) - b).max(2) > 40).mean() > 0.1
    for size in (32, 100):
        assert module.SET.render(PLAIN, 0, "site-1", 0, size).shape == (size, size, 3)


@both
def test_the_image_shows_the_class_of_the_label(module: ModuleType) -> None:
    painted = []

    def record(name: str, look: SiteLook, rng: np.random.Generator, side: int) -> Image.Image:
        painted.append(name)
        return module.paint(name, look, rng, side)

    copy = replace(module.SET.render.__self__, paint=record)
    for number in range(20):
        assert np.array_equal(
            copy.render(DEFAULT, 0, "site-1", number, 32), module.SET.render(DEFAULT, 0, "site-1", number, 32)
        )
    labels = module.SET.sample_labels(DEFAULT, 0, "site-1", 20).argmax(1)
    assert painted == [module.SET.classes[k] for k in labels]


@both
def test_the_appearance_of_a_site_is_visible(module: ModuleType) -> None:
    same = [module.SET.render(SyntheticSettings(site_shift=0), 0, "site-1", n, 32) for n in range(4)]
    moved = [module.SET.render(SyntheticSettings(site_shift=1), 0, "site-1", n, 32) for n in range(4)]
    for a, b in zip(same, moved, strict=True):
        assert np.abs(a.astype(int) - b).mean() > 5
    surfaces = (240, 120, 40), (40, 120, 240)
    looks = [replace(site_look(PLAIN, "site-1"), surface=surface) for surface in surfaces]
    for name in module.SET.classes:
        warm, cold = (
            np.asarray(module.paint(name, look, numpy_generator(1, "test"), 64), dtype=float).mean((0, 1))
            for look in looks
        )
        assert warm[0] - warm[2] > cold[0] - cold[2] + 10  # the backdrop takes the site's colour


@both
def test_prompts_are_complete_and_an_unknown_site_is_refused(module: ModuleType) -> None:
    assert (
        len(module.SET.classes)
        == len(set(module.SET.classes))
        == {"scrap": 6, "scenes": 5}[module.__name__.split(".")[-1]]
    )
    assert list(module.SET.prompts) == module.SET.classes
    calls = (
        lambda: module.SET.site_group(DEFAULT, "site-7"),
        lambda: module.SET.prevalences(DEFAULT, "site-7"),
        lambda: module.SET.sample_labels(DEFAULT, 0, "site-7", 1),
        lambda: module.SET.render(DEFAULT, 0, "site-7", 0, 32),
    )
    for call in calls:
        with pytest.raises(UserError, match="site-7"):
            call()


def test_every_class_of_scrap_has_its_own_piece() -> None:
    assert list(PIECES) == scrap.SET.classes
    look = site_look(PLAIN, "site-1")
    for number in range(4):
        pieces = []
        for draw_piece in PIECES.values():
            canvas = Canvas(96, look.surface, SMOOTH, numpy_generator(number, "test"), look)
            draw_piece(canvas.brush.at(0, 0, 0.5))
            pieces.append(np.asarray(canvas.drawing(), dtype=int))
        for a, b in combinations(pieces, 2):
            assert (np.abs(a - b).max(2) > 40).mean() > 0.02


def test_a_brush_rotates_and_scales() -> None:
    look = site_look(PLAIN, "site-1")
    brush = Canvas(100, look.surface, SMOOTH, numpy_generator(0, "test"), look).brush
    # The canvas's middle is pixel 50, its half side 50; 90 degrees clockwise turns "right" into "down".
    assert np.allclose(brush.pixels([(1, 0)]), [(100, 50)])
    turned = brush.at(0.2, 0.0, 0.5, 90)
    assert np.allclose(turned.pixels([(0, 0), (1, 0), (0, 1)]), [(60, 50), (60, 75), (35, 50)])
    assert np.allclose(turned.at(1, 0, 1, -90).pixels([(1, 0)]), [(85, 75)])


def test_materials_are_visible_where_they_are_painted() -> None:
    bank = textures(64)
    assert bank.shape == (8, 96, 96)
    assert bank.min() > 0
    assert bank.mean((1, 2)) == pytest.approx(np.ones(8), abs=0.15)
    look = site_look(PLAIN, "site-1")
    canvas = Canvas(64, (100, 100, 100), SMOOTH, numpy_generator(0, "test"), look)
    half = [(0.0, -1.0), (1.0, -1.0), (1.0, 1.0), (0.0, 1.0)]
    canvas.brush.fill(half, (100, 100, 100), CRUMPLED)
    canvas.brush.fill([(x, y / 2) for x, y in half], (100, 100, 100), None)  # keeps the material below
    seen = np.asarray(canvas.drawing())[..., 0].astype(float)
    assert seen[:, :30].std() < 5 < 15 < seen[:, 34:].std()
    assert seen[20:44, 34:].std() > 15
