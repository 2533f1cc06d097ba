"""The synthetic data set ``defects``: planted labels, their appearance, sites."""

from collections.abc import Callable
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from PIL import Image
from scipy.stats import multivariate_normal

from models.errors import UserError
from tasks.core.randomness import numpy_generator
from tasks.data.formats.synthetic import defects, defects_devices, defects_objects
from tasks.data.formats.synthetic.defects_backdrops import BACKDROPS, backdrop_shares
from tasks.data.formats.synthetic.defects_labels import BREATHERS, PEOPLE
from tasks.data.formats.synthetic.defects_persons import person
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.single_canvas import SMOOTH, Brush, Canvas
from tasks.data.formats.synthetic.sites import site_counts, site_look

C = {name: number for number, name in enumerate(defects.SET.classes)}
SITES = [f"site-{number}" for number in range(1, 7)]
DEFAULT = SyntheticSettings(set="defects")
PLAIN = SyntheticSettings(set="defects", site_shift=0)


@pytest.fixture(scope="module")
def sampled() -> dict[str, np.ndarray]:
    """5,000 label vectors of each of three sites, one of each convention."""
    return {site: defects.SET.sample_labels(DEFAULT, 0, site, 5000) for site in SITES[:3]}


def labels_of(*names: str) -> np.ndarray:
    return np.array([name in names for name in defects.SET.classes], dtype=np.uint8)


def paint(labels: np.ndarray, number: int, side: int = 64) -> np.ndarray:
    look, shares = site_look(PLAIN, "site-1"), backdrop_shares(PLAIN, "site-1")
    return np.asarray(defects.paint(labels, look, shares, numpy_generator(number, "test"), side), dtype=int)


def cell(draw: Callable[[Brush], None], number: int) -> np.ndarray:
    """One object on a plain ground, [96, 96, 3]; unit 36 pixels."""
    look = site_look(PLAIN, "site-1")
    canvas = Canvas(96, look.surface, SMOOTH, numpy_generator(number, "test"), look)
    draw(canvas.brush.at(0, 0, 0.75))
    return np.asarray(canvas.drawing(), dtype=int)


def test_classes_are_the_17_codes_in_the_order_of_the_table() -> None:
    codes = """bj_bpmh bj_bpps bj_wkps bjdsyc jyz_pl sly_dmyw hxq_gjbs hxq_gjtps ywzt_yfyc xmbhyc yw_gkxfw yw_nc gbps
    kgg_ybh wcaqm wcgz xy"""
    assert codes.split() == defects.SET.classes == list(defects.SET.prompts)
    assert len(set(defects.SET.prompts.values())) == 17


def test_labels_have_the_planted_prevalence_and_joint_probabilities(sampled: dict[str, np.ndarray]) -> None:
    for site, labels in sampled.items():
        planted, strength = defects.SET.prevalences(DEFAULT, site), defects.SET.strength_matrix(DEFAULT, site)
        error = np.sqrt(planted * (1 - planted) / len(labels))
        assert (np.abs(labels.mean(0) - planted) < 4 * error).all()
        below = [NormalDist().inv_cdf(p) for p in planted]
        for i, j in combinations(range(17), 2):
            covariance = [[1, strength[i, j]], [strength[i, j], 1]]
            expected = multivariate_normal.cdf([below[i], below[j]], cov=covariance)
            seen = (labels[:, i] & labels[:, j]).mean()
            assert abs(seen - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(labels))


def test_prevalences_are_imbalanced_and_move_with_their_own_setting() -> None:
    shared = SyntheticSettings(set="defects", site_prevalence=0)
    values = defects.SET.prevalences(shared, "site-1")
    assert 0.05 < values.min() < 0.07 < 0.33 < values.max() < 0.35
    assert 2.5 < values.sum() < 3.5  # labels an image
    for site in SITES:
        assert np.array_equal(defects.SET.prevalences(shared, site), values)
        assert np.array_equal(defects.SET.strength_matrix(shared, site), defects.SET.strength_matrix(DEFAULT, site))
        own = defects.SET.prevalences(DEFAULT, site)
        assert own.min() > 0.03
        assert own.max() < 0.45
        assert np.abs(own - values).max() > 0.04


def test_sites_deviate_as_their_conventions_say() -> None:
    matrices = {site: defects.SET.strength_matrix(DEFAULT, site) for site in SITES}
    assert [defects.SET.site_group(DEFAULT, site) for site in SITES] == [0, 1, 2, 0, 1, 2]
    for group, site in enumerate(SITES[:3]):
        matrix = matrices[site]
        assert np.array_equal(matrix, matrices[SITES[group + 3]])
        assert (np.diag(matrix) == 1).all()
        assert np.linalg.eigvalsh(matrix).min() > 0
        for a, b in (*combinations(PEOPLE, 2), *combinations(BREATHERS, 2)):
            assert matrix[C[a], C[b]] > 0.3
        # Work shows in open doors, moisture in oil stains.
        assert (matrix[C["wcaqm"], C["xmbhyc"]] > 0.3) == (group != 1)
        assert (matrix[C["wcaqm"], C["xmbhyc"]] < -0.3) == (group == 1)
        assert (matrix[C["hxq_gjbs"], C["sly_dmyw"]] > 0.3) == (group != 2)
        assert (matrix[C["hxq_gjbs"], C["sly_dmyw"]] < -0.3) == (group == 2)
    same = [defects.SET.strength_matrix(SyntheticSettings(set="defects", site_correlation=0), site) for site in SITES]
    assert all(np.array_equal(matrix, matrices["site-1"]) for matrix in same)
    none = SyntheticSettings(set="defects", correlation=0)
    assert np.array_equal(defects.SET.strength_matrix(none, "site-2"), np.eye(17))


def test_an_image_depends_on_seed_site_and_number_only() -> None:
    few = SyntheticSettings(set="defects", images=8, sites=2)
    many = SyntheticSettings(set="defects", images=500, sites=5)
    assert sum(site_counts(few).values()) == 8
    labels = defects.SET.sample_labels(few, 3, "site-2", 30)
    assert (labels.shape, labels.dtype) == ((30, 17), np.uint8)
    assert np.array_equal(labels, defects.SET.sample_labels(many, 3, "site-2", 200)[:30])
    assert not np.array_equal(labels, defects.SET.sample_labels(few, 4, "site-2", 30))
    late = defects.SET.render(many, 3, "site-2", 7, 32)
    images = [defects.SET.render(few, 3, "site-2", number, 32) for number in range(8)]
    assert (late.shape, late.dtype) == ((32, 32, 3), np.uint8)
    assert np.array_equal(late, images[7])
    assert len({image.tobytes() for image in images}) == 8
    assert not np.array_equal(late, defects.SET.render(few, 4, "site-2", 7, 32))
    assert not np.array_equal(late, defects.SET.render(few, 3, "site-1", 7, 32))


def test_an_image_shows_its_labels_and_no_other_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: set[str] = set()

    def watch(module: object, name: str, seen: Callable[..., set[str]]) -> None:
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda cell, *state: (shown.update(seen(*state)), original(cell, *state))[1])

    watch(defects, "person", lambda *faults: {name for name, present in zip(PEOPLE, faults, strict=True) if present})
    watch(defects_devices, "breather", set)
    watch(defects_devices, "dial", lambda fault: {fault} - {None})
    for module, name, label in (
        (defects_devices, "cabinet", "xmbhyc"),
        (defects_devices, "straps", "kgg_ybh"),
        (defects_objects, "insulator", "jyz_pl"),
        (defects_objects, "cross_arm", "yw_nc"),
        (defects_objects, "covers", "gbps"),
    ):
        watch(module, name, lambda fault, label=label: {label} if fault else set())
    # These two have no function with a fault, so their objects are replaced.
    for name, label in (("sly_dmyw", "sly_dmyw"), ("yw_gkxfw", "yw_gkxfw")):
        item = defects.FAULTY[name]
        draw = lambda cell, item=item, label=label: (shown.add(label), item.draw(cell))[1]  # noqa: E731
        monkeypatch.setitem(defects.FAULTY, name, defects.DefectsObject(item.height, item.width, item.tilt, draw))
    labels = defects.SET.sample_labels(DEFAULT, 0, "site-1", 150)
    everything = np.ones((1, 17), dtype=np.uint8)
    assert labels.any(0).all()
    for number, row in enumerate([*labels, *everything, 0 * everything[0]]):
        shown.clear()
        paint(np.ravel(row), number)
        assert shown == {name for name, present in zip(defects.SET.classes, np.ravel(row), strict=True) if present}


INTACT: dict[str, tuple[Callable[[Brush], None], Callable[[Brush], None]]] = {
    **{
        fault: (lambda c: defects_devices.dial(c, None), lambda c, fault=fault: defects_devices.dial(c, fault))
        for fault in ("bj_bpmh", "bj_bpps", "bj_wkps", "bjdsyc")
    },
    **{
        fault: (
            lambda c: defects_devices.breather(c, frozenset()),
            lambda c, fault=fault: defects_devices.breather(c, frozenset([fault])),
        )
        for fault in BREATHERS
    },
    **{
        fault: (
            lambda c: person(c, False, False, False),
            lambda c, fault=fault: person(c, *(name == fault for name in PEOPLE)),
        )
        for fault in PEOPLE
    },
    "jyz_pl": (lambda c: defects_objects.insulator(c, False), lambda c: defects_objects.insulator(c, True)),
    "sly_dmyw": (defects_objects.puddle, defects_objects.oil_stain),
    "xmbhyc": (lambda c: defects_devices.cabinet(c, False), lambda c: defects_devices.cabinet(c, True)),
    "yw_gkxfw": (defects_objects.marker, defects_objects.hanging),
    "yw_nc": (lambda c: defects_objects.cross_arm(c, False), lambda c: defects_objects.cross_arm(c, True)),
    "gbps": (lambda c: defects_objects.covers(c, False), lambda c: defects_objects.covers(c, True)),
    "kgg_ybh": (lambda c: defects_devices.straps(c, False), lambda c: defects_devices.straps(c, True)),
}


@pytest.mark.parametrize("label", defects.SET.classes)
def test_a_defect_differs_from_its_intact_counterpart(label: str) -> None:
    intact, faulty = INTACT[label]
    for number in range(12):
        changed = np.abs(cell(intact, number) - cell(faulty, number)).max(2) > 40
        assert changed.mean() > 0.008  # 74 of 9,216 pixels: a square of 6 pixels a side in a cell of 64


def test_pointers_and_straps_have_the_angle_of_the_label() -> None:
    y, x = np.mgrid[-47.5:48, -47.5:48]
    tip = (np.hypot(x, y) > 12) & (np.hypot(x, y) < 24)  # of the pointer, from hub to ring of sectors
    for number in range(12):
        for fault, low, high in ((None, -106, 18), ("bjdsyc", 62, 116)):
            dark = tip & (cell(lambda c, fault=fault: defects_devices.dial(c, fault), number).max(2) < 110)
            assert low < np.degrees(np.arctan2(x[dark].mean(), -y[dark].mean())) < high
        # A strap that bridges its studs is the only coloured thing in the panel's upper half.
        saturation = [
            np.ptp(cell(lambda c, closed=closed: defects_devices.straps(c, closed), number), axis=2)[20:42]
            for closed in (False, True)
        ]
        assert (saturation[0] > 100).sum() < 40 < 100 < (saturation[1] > 100).sum()


def test_site_appearance_and_backdrops_are_visible() -> None:
    for site in SITES:
        assert backdrop_shares(PLAIN, site) == pytest.approx(np.full(4, 0.25))
        assert backdrop_shares(DEFAULT, site).sum() == pytest.approx(1)
    assert [int(backdrop_shares(DEFAULT, site).argmax()) for site in SITES] == [0, 1, 2, 3, 0, 1]
    only = SyntheticSettings(set="defects", site_shift=0, background=1.0)
    assert np.array_equal(backdrop_shares(only, "site-2"), backdrop_shares(DEFAULT, "site-2"))
    for number in range(4):
        same, moved = (defects.SET.render(s, 0, "site-4", number, 32).astype(int) for s in (PLAIN, DEFAULT))
        assert np.abs(same - moved).mean() > 5
    look = site_look(PLAIN, "site-1")
    images = []
    for kind in range(len(BACKDROPS)):
        shares = np.eye(len(BACKDROPS))[kind]
        image = defects.paint(labels_of(), look, shares, numpy_generator(0, "test"), 96)
        assert isinstance(image, Image.Image)
        images.append(np.asarray(image, dtype=int))
    for a, b in combinations(images, 2):
        assert (np.abs(a - b).max(2) > 30).mean() > 0.1


def test_an_unknown_site_is_refused() -> None:
    calls = (defects.SET.site_group, defects.SET.prevalences, defects.SET.strength_matrix, backdrop_shares)
    for call in calls:
        with pytest.raises(UserError, match="site-7"):
            call(DEFAULT, "site-7")
    with pytest.raises(UserError, match="site-7"):
        defects.SET.sample_labels(DEFAULT, 0, "site-7", 1)
    with pytest.raises(UserError, match="site-7"):
        defects.SET.render(DEFAULT, 0, "site-7", 0, 32)
