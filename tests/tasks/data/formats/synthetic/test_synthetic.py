"""The synthetic data sets: planted labels, sites, images."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
from PIL import Image, ImageDraw
from pydantic import ValidationError

from models.errors import UserError
from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic import cabinet
from tasks.data.formats.synthetic.cabinet_devices import DEVICES
from tasks.data.formats.synthetic.latent import LabelModel, LabelSampler
from tasks.data.formats.synthetic.pen import Pen
from tasks.data.formats.synthetic.reader import read
from tasks.data.formats.synthetic.registry import SETS, synthetic_set
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import site_counts, site_look
from tasks.data.images.decode import Limits


def render(settings: SyntheticSettings, seed: int, size: int) -> Iterator[SimpleNamespace]:
    """Every image of the set with its labels, as an ingest reads them."""
    ingest = SimpleNamespace(image_size=size)
    for sample in read(Path(), settings, ingest, seed):
        decoded = sample.image.load(Limits())
        yield SimpleNamespace(
            path=sample.path, site=sample.site, labels=sample.labels, image=decoded.image, sha256=decoded.sha256
        )


C = {name: number for number, name in enumerate(cabinet.SET.classes)}
SITES = [f"site-{number}" for number in range(1, 7)]
PLAIN = SyntheticSettings(site_shift=0)


def lift(labels: np.ndarray) -> np.ndarray:
    """P(i and j) / (P(i) P(j)), counted."""
    x = labels.astype(float)
    share = x.mean(0)
    return (x.T @ x / len(x)) / np.outer(share, share)


@pytest.fixture(scope="module")
def sampled() -> dict[str, np.ndarray]:
    """5,000 label vectors of each of three sites, one of each convention."""
    return {site: cabinet.SET.sample_labels(SyntheticSettings(), 0, site, 5000) for site in SITES[:3]}


def test_every_registered_set_offers_the_interface() -> None:
    assert get_args(SyntheticSettings.model_fields["set"].annotation) == tuple(SETS)
    for name in SETS:
        images = synthetic_set(name)
        assert len(set(images.classes)) == len(images.classes)
        assert list(images.prompts) == images.classes
        settings = SyntheticSettings(set=name, images=6, sites=2)
        assert sum(site_counts(settings).values()) == len(list(render(settings, 0, 32))) == 6
    with pytest.raises(UserError, match="moon"):
        synthetic_set("moon")


@pytest.mark.integration
def test_settings_and_registry_import_nothing_heavy() -> None:
    names = "tasks.data.formats.synthetic.settings, tasks.data.formats.synthetic.registry"
    code = f"import sys, {names}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tasks.data.formats.synthetic.registry" in modules
    assert not {"PIL", "numpy", "torch", "pandas", "tasks.data.formats.synthetic.cabinet"} & set(modules)


@pytest.mark.parametrize(
    "wrong", [{"images": 5}, {"images": 0, "sites": 1}, {"site_shift": 1.5}, {"correlation": -0.1}, {"colour": 1}]
)
def test_wrong_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        SyntheticSettings(**wrong)


def test_an_unknown_site_is_refused() -> None:
    for call in (site_look, cabinet.SET.strength_matrix, cabinet.SET.prevalences):
        with pytest.raises(UserError, match="site-7"):
            call(SyntheticSettings(), "site-7")


def test_latent_model_has_the_orthant_probabilities_of_a_bivariate_normal() -> None:
    # For prevalence 1/2, P(i and j) = 1/4 + asin(rho) / (2 pi) (Sheppard 1899).
    model = LabelModel(np.array([[0.8], [0.6], [-0.6]]), np.full(3, 0.5))
    assert model.strength() == pytest.approx(np.array([[1, 0.48, -0.48], [0.48, 1, -0.36], [-0.48, -0.36, 1]]))
    sampler, rng = LabelSampler(model), numpy_generator(0, "test")
    x = np.stack([sampler.sample(rng) for _ in range(20000)]).astype(float)
    for i, j in combinations(range(3), 2):
        expected = 0.25 + np.arcsin(model.strength()[i, j]) / (2 * np.pi)
        assert (x[:, i] * x[:, j]).mean() == pytest.approx(expected, abs=0.012)


@pytest.mark.parametrize("away", [0.0, 0.5, 1.0])
def test_strength_is_a_correlation_matrix(away: float) -> None:
    for site in SITES:
        matrix = cabinet.SET.strength_matrix(SyntheticSettings(site_correlation=away), site)
        assert np.array_equal(matrix, matrix.T)
        assert (np.diag(matrix) == 1).all()
        assert np.linalg.eigvalsh(matrix).min() > 0
        halved = cabinet.SET.strength_matrix(SyntheticSettings(site_correlation=away, correlation=0.5), site)
        assert halved - np.eye(16) == pytest.approx((matrix - np.eye(16)) / 2)


def test_planted_cooccurrence_is_found_in_sampled_labels(sampled: dict[str, np.ndarray]) -> None:
    upper = np.triu_indices(16, 1)
    for site, labels in sampled.items():
        planted = cabinet.SET.strength_matrix(SyntheticSettings(), site)[upper]
        seen = np.log(lift(labels)[upper])
        clear = np.abs(planted) > 0.2
        assert clear.sum() > 40
        assert (np.sign(seen[clear]) == np.sign(planted[clear])).all()
        ranks = np.argsort(np.argsort([planted, seen], axis=1), axis=1)
        assert np.corrcoef(ranks)[0, 1] > 0.95


def test_without_correlation_labels_are_independent() -> None:
    settings = SyntheticSettings(correlation=0)
    assert np.array_equal(cabinet.SET.strength_matrix(settings, "site-3"), np.eye(16))
    phi = np.corrcoef(cabinet.SET.sample_labels(settings, 0, "site-3", 5000).T.astype(float))
    assert np.abs(phi - np.eye(16)).max() < 0.06  # four standard errors


def test_sites_deviate_as_their_conventions_say(sampled: dict[str, np.ndarray]) -> None:
    left, on, red = C["switch-left"], C["platen-on"], C["red-red"]
    lifts = {site: lift(labels) for site, labels in sampled.items()}
    assert lifts["site-1"][left, on] < 0.6
    assert lifts["site-2"][left, on] > 1.5  # switches the other way round
    assert lifts["site-1"][red, on] > 1.5
    assert lifts["site-3"][red, on] < 0.6  # lamps the other way round
    shares = np.stack([labels.mean(0) for labels in sampled.values()])
    assert np.ptp(shares, axis=0).max() > 0.1


def test_without_site_correlation_sites_agree() -> None:
    settings = SyntheticSettings(site_correlation=0)
    for truth in (cabinet.SET.strength_matrix, cabinet.SET.prevalences):
        values = [truth(settings, site) for site in SITES]
        assert all(np.array_equal(values[0], other) for other in values[1:])
    a, b = (cabinet.SET.sample_labels(settings, 0, site, 5000) for site in SITES[:2])
    assert not np.array_equal(a, b)
    assert np.abs(a.mean(0) - b.mean(0)).max() < 0.04  # four standard errors


def test_each_label_is_neither_rare_nor_common_at_any_site() -> None:
    for site in SITES:
        labels = cabinet.SET.sample_labels(SyntheticSettings(), 0, site, 1500)
        assert labels.mean(0).min() > 0.08
        assert labels.mean(0).max() < 0.45
        assert 3 < labels.sum(1).mean() < 5


def test_labels_are_reproducible_and_match_the_rendered_images() -> None:
    settings = SyntheticSettings(images=20, sites=2)
    first = cabinet.SET.sample_labels(settings, 3, "site-1", 40)
    assert first.dtype == np.uint8
    assert first.shape == (40, 16)
    assert np.array_equal(first[:7], cabinet.SET.sample_labels(settings, 3, "site-1", 7))
    assert not np.array_equal(first, cabinet.SET.sample_labels(settings, 4, "site-1", 40))
    for number, sample in enumerate(s for s in render(settings, 3, 32) if s.site == "site-1"):
        assert set(sample.labels or ()) == {name for name in cabinet.SET.classes if first[number, C[name]]}


def test_an_image_does_not_depend_on_the_number_of_images() -> None:
    few = {s.path: s for s in render(SyntheticSettings(images=8, sites=2), 0, 32)}
    many = {s.path: s for s in render(SyntheticSettings(images=30, sites=4), 0, 32)}
    assert set(few) < set(many)
    for path, sample in few.items():
        assert sample.labels == many[path].labels
        assert np.array_equal(sample.image, many[path].image)


@pytest.mark.parametrize("size", [32, 100])
def test_samples_are_complete(size: int) -> None:
    samples = list(render(SyntheticSettings(images=12, sites=2), 0, size))
    assert samples[0].path == "cabinet/site-1/000000.png"
    assert len({s.sha256 for s in samples}) == len({s.path for s in samples}) == 12
    for s in samples:
        assert s.image is not None
        assert (s.image.shape, s.image.dtype) == ((size, size, 3), np.uint8)
        assert s.labels == tuple(sorted(set(s.labels or ())))
        assert s.sha256 == hashlib.sha256(s.image.tobytes()).hexdigest()


def cell(name: str, number: int = 0) -> np.ndarray:
    """One device on a plain panel, float [80, 80, 3]; unit 40 pixels."""
    look = replace(site_look(PLAIN, "site-1"), fading=0.0)
    image = Image.new("RGB", (80, 80), look.surface)
    DEVICES[name](Pen(ImageDraw.Draw(image), 40, 40, 36, numpy_generator(number, "test"), look))
    return np.asarray(image, dtype=float)


def test_every_label_has_a_device_and_no_two_are_alike() -> None:
    assert list(DEVICES) == cabinet.SET.classes
    blank = np.full((80, 80, 3), site_look(PLAIN, "site-1").surface, dtype=float)
    for number in range(8):
        images = [blank, *(cell(name, number) for name in cabinet.SET.classes)]
        for a, b in combinations(images, 2):
            assert (np.abs(a - b).max(2) > 40).mean() > 0.02


def test_each_label_changes_the_image() -> None:
    look = replace(site_look(PLAIN, "site-1"), noise=0.0)
    images = {}
    for name in (None, *cabinet.SET.classes):
        labels = np.array([other == name for other in cabinet.SET.classes], dtype=np.uint8)
        images[name] = cabinet.render_image(labels, look, numpy_generator(0, "test"), 64).astype(float)
    for name in cabinet.SET.classes:
        assert (np.abs(images[name] - images[None]).max(2) > 30).mean() > 0.02


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("switch-center", -7, 7), ("switch-left", -98, -82), ("switch-right", 82, 98), ("switch-center-half", 33, 50)],
)
def test_switch_handles_have_the_angle_of_the_label(name: str, low: float, high: float) -> None:
    y, x = np.mgrid[-39.5:40, -39.5:40]
    inside = np.hypot(x, y) < 0.6 * 36
    for number in range(12):
        # The handle is the one bright thing on the dark knob; it reaches further from the axis on its pointing side.
        bright = inside & (cell(name, number).max(2) > 130)
        angle = np.degrees(np.arctan2(x[bright].mean(), -y[bright].mean()))
        angle = abs(angle) if name == "switch-center-half" else angle
        assert low - 5 < angle < high + 5


def test_dark_lamps_are_not_bright_and_half_lit_symbols_are_lit_on_one_side() -> None:
    for number in range(12):
        off, on = (cell(name, number) for name in ("red-red-off", "red-red"))
        assert ((off[..., 0] > 200) & (off[..., 1] < 140)).mean() < 0.02 < 0.08 < (on[..., 0] > 200).mean()
        plain, lit, half = (
            [np.ptp(part, axis=2).mean() for part in np.split(cell(name, number)[:, 22:58], [40])]
            for name in ("transformer", "transformer-on", "transformer-on-half")
        )
        assert max(plain) < 15 < 30 < min(lit)
        assert min(half) < 0.7 * max(half)
