"""The sites of the synthetic data sets: shares, appearance, one cause of difference at a time, photographs."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic import cabinet
from tasks.data.formats.synthetic.camera import photograph
from tasks.data.formats.synthetic.defects_backdrops import backdrop_shares
from tasks.data.formats.synthetic.registry import SETS, synthetic_set
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import RANGES, site_counts, site_look

SITES = [f"site-{number}" for number in range(1, 7)]
PLAIN = SyntheticSettings(site_shift=0)
FULL = SyntheticSettings()
CAUSES = {
    "lighting": {"brightness", "warmth", "gradient", "fading"},
    "background": {"surface"},
    "viewpoint": {"yaw", "pitch", "roll"},
    "blur": {"blur", "noise"},
}


def test_counts_are_uneven_fixed_and_complete() -> None:
    # Shares 1.4 : 1.2 : 1 : 1 : 0.8 : 0.6 of 2400, whose sixth is 400.
    assert list(site_counts(SyntheticSettings()).values()) == [560, 480, 400, 400, 320, 240]
    for images, sites in ((6, 6), (7, 6), (100, 3), (101, 13), (100, 100)):
        counts = site_counts(SyntheticSettings(images=images, sites=sites))
        assert len(counts) == sites
        assert sum(counts.values()) == images
        assert min(counts.values()) >= 1


def test_site_shift_moves_the_appearance_from_neutral_to_the_sites_own() -> None:
    none, half, full = (
        [site_look(SyntheticSettings(site_shift=shift), site) for site in SITES] for shift in (0, 0.5, 1)
    )
    assert all(look == none[0] for look in none)
    assert len(set(full)) == len(SITES)
    for name, (low, high) in RANGES.items():
        values = [getattr(look, name) for look in full]
        assert low <= min(values) < max(values) <= high
        assert max(values) - min(values) > 0.4 * (high - low)
        for a, b, c in zip(none, half, full, strict=True):
            assert getattr(b, name) == pytest.approx((getattr(a, name) + getattr(c, name)) / 2)
    labels = np.zeros(16)
    dull, bright = (cabinet.render_image(labels, full[k], numpy_generator(0, "test"), 32).mean() for k in (3, 5))
    assert bright > dull + 40


@pytest.mark.parametrize("cause", CAUSES)
def test_one_cause_of_difference_changes_only_its_own_traits(cause: str) -> None:
    alone, without = SyntheticSettings(site_shift=0, **{cause: 1}), SyntheticSettings(**{cause: 0})
    for site in SITES:
        plain, full = asdict(site_look(PLAIN, site)), asdict(site_look(FULL, site))
        own = {name: full[name] for name in CAUSES[cause]}
        assert all(value != plain[name] for name, value in own.items())
        assert asdict(site_look(alone, site)) == plain | own
        assert asdict(site_look(without, site)) == full | {name: plain[name] for name in own}
        as_without, as_with = (PLAIN, FULL) if cause == "background" else (FULL, PLAIN)
        assert np.array_equal(backdrop_shares(without, site), backdrop_shares(as_without, site))
        # Alone, only the background brings the site's own backdrops; the other causes leave all kinds alike.
        assert np.array_equal(backdrop_shares(alone, site), backdrop_shares(as_with, site))


@pytest.mark.parametrize("name", SETS)
def test_every_cause_is_visible_and_all_together_equal_site_shift(name: str) -> None:
    def images(**settings: float) -> list[np.ndarray]:
        own = SyntheticSettings(set=name, **settings)
        return [synthetic_set(name).render(own, 0, "site-4", number, 32) for number in range(4)]

    plain, full = images(site_shift=0), images(site_shift=1)
    for cause in CAUSES:
        for same, moved in zip(plain, images(site_shift=0, **{cause: 1}), strict=True):
            assert np.abs(same.astype(int) - moved).mean() > 1
    for image, other in zip(full, images(site_shift=0, **dict.fromkeys(CAUSES, 1)), strict=True):
        assert np.array_equal(image, other)


@pytest.mark.parametrize("name", ["cabinet", "defects", "inspection"])
def test_cooccurrence_and_prevalence_change_separately_and_do_not_affect_appearance(name: str) -> None:
    images = synthetic_set(name)
    full, shared = (SyntheticSettings(set=name, site_correlation=away) for away in (1, 0))
    prevalence = SyntheticSettings(set=name, site_correlation=0, site_prevalence=1)
    cooccurrence = SyntheticSettings(set=name, site_correlation=1, site_prevalence=0)
    for site in SITES:
        assert np.array_equal(images.prevalences(prevalence, site), images.prevalences(full, site))
        assert np.array_equal(images.strength_matrix(prevalence, site), images.strength_matrix(shared, site))
        assert np.array_equal(images.prevalences(cooccurrence, site), images.prevalences(shared, site))
        assert np.array_equal(images.strength_matrix(cooccurrence, site), images.strength_matrix(full, site))
        assert not np.allclose(images.prevalences(full, site), images.prevalences(shared, site))
        turned = images.site_group(full, site) != 0
        assert np.allclose(images.strength_matrix(full, site), images.strength_matrix(shared, site)) != turned
        assert site_look(full, site) == site_look(shared, site) == site_look(prevalence, site)
    # Looks change no label, so that a difference in the images alone can be compared.
    dressed, bare = (
        images.sample_labels(SyntheticSettings(set=name, site_shift=shift), 0, "site-2", 50) for shift in (1, 0)
    )
    assert np.array_equal(dressed, bare)


def test_photographs_keep_the_grid_in_view_and_add_the_noise_asked_for() -> None:
    spots = {(0.1, 0.1): 0, (0.9, 0.1): 1, (0.1, 0.9): 2, (0.9, 0.9): 2}
    drawing = Image.new("RGB", (256, 256))
    for (x, y), channel in spots.items():
        colour = tuple(255 if k == channel else 0 for k in range(3))
        ImageDraw.Draw(drawing).ellipse((256 * x - 8, 256 * y - 8, 256 * x + 8, 256 * y + 8), fill=colour)
    dot = Image.new("RGB", (256, 256))
    ImageDraw.Draw(dot).ellipse((120, 120, 136, 136), fill=(255, 255, 255))
    flat = replace(site_look(PLAIN, "site-1"), surface=(0, 0, 0), gradient=0.0, brightness=1.0, noise=0.0, blur=0.0)
    for number, (yaw, pitch, roll) in enumerate([(0.1, 0.08, 5), (-0.1, 0.08, -5), (0.1, -0.08, -5), (0, 0, 0)]):
        look = replace(flat, yaw=yaw, pitch=pitch, roll=roll)
        seen = photograph(drawing, look, numpy_generator(number, "test"), 128)
        for k, places in enumerate((1, 1, 2)):
            assert (seen[..., k] > 100).sum() > places * 25  # a spot covers about 50 pixels
        middle = photograph(dot, look, numpy_generator(number, "test"), 128)[..., 0] > 100
        assert np.abs(np.argwhere(middle).mean(0) - 63.5).max() < 3.5  # the middle moves by 2 % at most

    grey = Image.new("RGB", (256, 256), (120, 120, 120))
    noisy = photograph(grey, replace(flat, noise=9.0, surface=(400, 400, 400)), numpy_generator(0, "test"), 128)
    assert noisy[32:96, 32:96, 1].astype(float).std() == pytest.approx(9, rel=0.05)
