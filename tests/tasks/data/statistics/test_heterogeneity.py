"""Statistics of client heterogeneity, by hand and against an independent restatement; their plots and tables."""

import json
import math

import numpy as np
import pytest
from PIL import Image

from tasks.data.statistics.heterogeneity import (
    cooccurrence,
    cooccurrence_distance,
    distance_by_chance,
    effective_classes,
    effective_clients,
    label_counts,
    mean_js_distance,
    statistics,
)
from tasks.data.statistics.heterogeneity_table import HEADS, as_markdown
from tasks.data.statistics.plots import FILES, label_client_heatmap, write_partition_figures

CLASSES = ["a", "b", "c"]
# Client x: a and b always together. Client y: never together, one image without any label, no c at x.
TARGETS = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]], np.uint8)
OWNERS = np.array(["x"] * 4 + ["y"] * 4)
MANY_LABELS, MANY_CLIENTS = (pytest.param(*size, marks=pytest.mark.slow) for size in ((150, 90), (1000, 16)))


def random_clients(images: int, labels: int, clients: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    owners = np.concatenate([np.arange(clients), rng.integers(0, clients, images - clients)])
    shift = rng.normal(size=(clients, labels))
    targets = (rng.normal(size=(images, labels)) + shift[owners] > 0.8).astype(np.uint8)
    return targets, np.array([f"client-{k:04d}" for k in owners]), [f"label {c}" for c in range(labels)]


def test_statistics_of_two_clients_by_hand():
    found = statistics(TARGETS, OWNERS, ["x", "y"], CLASSES)
    x, y = found["clients"]["x"], found["clients"]["y"]
    assert (x["images"], x["negatives"], x["labels"]) == (4, 2, {"a": 2, "b": 2, "c": 0})
    assert (y["images"], y["negatives"], y["labels"]) == (4, 1, {"a": 2, "b": 1, "c": 1})
    assert x["prevalence"] == {"a": 0.5, "b": 0.5, "c": 0.0}
    assert y["cardinality"] == 1.0
    assert x["labels_without_positives"] == ["c"]
    assert y["labels_without_positives"] == []
    assert x["effective_classes"] == pytest.approx(2)
    # y has the labels at 2 : 1 : 1, an entropy of 1.5 bits
    assert y["effective_classes"] == pytest.approx(2**1.5)
    assert found["effective_clients"] == 2
    # phi of (a, b) at x: both on the same two images, 1; at y: (4*0 - 2*1) / sqrt(2*2 * 1*3);
    # over all: (8*2 - 4*3) / sqrt(4*4 * 3*5)
    whole = found["cooccurrence"]
    assert whole[0][1] == pytest.approx(4 / math.sqrt(240))
    assert whole[0][2] == pytest.approx((8 - 4) / math.sqrt(112))
    # x has no c, so (a, b) alone counts, whatever its weight
    assert x["cooccurrence_distance"] == pytest.approx(1 - 4 / math.sqrt(240))
    assert x["undefined_pairs"] == 2
    squared = {
        (0, 1): (-2 / math.sqrt(12) - 4 / math.sqrt(240)) ** 2,
        (0, 2): ((4 - 2) / math.sqrt(12) - 4 / math.sqrt(112)) ** 2,
        (1, 2): ((0 - 1) / math.sqrt(9) - (0 - 3) / math.sqrt(105)) ** 2,
    }
    std = [math.sqrt(p * (1 - p)) for p in (4 / 8, 3 / 8, 1 / 8)]
    weight = {(i, j): std[i] * std[j] for i, j in squared}
    expected = math.sqrt(sum(weight[pair] * squared[pair] for pair in squared) / sum(weight.values()))
    assert y["cooccurrence_distance"] == pytest.approx(expected)
    assert y["undefined_pairs"] == 0
    assert found["mean_cooccurrence_distance"] == pytest.approx((x["cooccurrence_distance"] + expected) / 2)
    assert found["mean_js_distance"] == pytest.approx((x["js_distance"] + y["js_distance"]) / 2)


def test_js_distance_includes_images_without_a_label():
    # Two clients with nothing in common, half of all images each: [1, 0] against [1/2, 1/2], whose mean is [3/4, 1/4]
    divergence = 0.5 * math.log2(1 / 0.75) + 0.5 * (0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25))
    targets, owners = np.array([[1], [1], [0], [0]], np.uint8), np.array(["p", "p", "q", "q"])
    found = statistics(targets, owners, ["p", "q"], ["a"])
    assert found["mean_js_distance"] == pytest.approx(math.sqrt(divergence))
    assert found["mean_js_distance"] == mean_js_distance(np.array([[2, 0], [0, 2]]))
    assert statistics(targets, np.array(list("pqpq")), ["p", "q"], ["a"])["mean_js_distance"] == 0
    assert effective_clients(np.array([3, 1])) == pytest.approx(16 / 10)
    assert effective_classes(np.zeros(3)) == 0


def test_phi_is_the_correlation_of_label_columns():
    targets, _, _ = random_clients(300, 6, 3)
    assert cooccurrence(targets) == pytest.approx(np.corrcoef(targets.T))
    targets[:, 2], targets[:, 4] = 0, 1
    undefined = np.isnan(cooccurrence(targets))
    assert undefined[2].all()
    assert undefined[:, 4].all()
    assert undefined.sum() == 36 - 16


def test_random_clients_have_the_cooccurrence_distance_expected_by_chance():
    rng = np.random.default_rng(3)
    common = rng.normal(size=(20_000, 1))
    targets = (common + rng.normal(size=(20_000, 12)) > np.linspace(0, 2.5, 12)).astype(np.uint8)
    whole, share = cooccurrence(targets), targets.mean(axis=0)
    for size in (100, 1000):
        rows = [rng.choice(20_000, size, replace=False) for _ in range(30)]
        found = np.mean([cooccurrence_distance(cooccurrence(targets[row]), whole, share)[0] for row in rows])
        assert found == pytest.approx(distance_by_chance(size, 20_000), rel=0.25)
    assert cooccurrence_distance(whole, whole, share) == (0.0, 0)
    assert distance_by_chance(5, 5) == 0


@pytest.mark.figures
def test_single_label_data_have_no_cooccurrence(tmp_path):
    targets = np.eye(3, dtype=np.uint8)[[0, 1, 2, 0, 1, 2]]
    owners = np.array(list("ppppqq"))
    found = statistics(targets, owners, ["p", "q"], CLASSES)
    assert found["cooccurrence"] is None
    assert found["mean_cooccurrence_distance"] is None
    assert found["clients"]["p"]["cooccurrence_distance"] is None
    write_partition_figures(targets, owners, ["p", "q"], CLASSES, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES) - {"cooccurrence.png"}
    assert "No image has two labels" in (tmp_path / "heterogeneity.md").read_text()


def test_counts_do_not_depend_on_the_order_of_images_or_clients():
    targets, owners, _ = random_clients(200, 4, 5)
    ids = sorted(set(owners.tolist()))
    counts = label_counts(targets, owners, ids)
    assert counts.tolist() == [[int(targets[owners == k, c].sum()) for c in range(4)] for k in ids]
    order = np.random.default_rng(0).permutation(200)
    assert (label_counts(targets[order], owners[order], ids[::-1])[::-1] == counts).all()


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize(("clients", "labels"), [(1, 1), (1, 3), (6, 17), (61, 3), MANY_LABELS, MANY_CLIENTS])
def test_plots_have_a_readable_size(tmp_path, clients, labels):
    targets, owners, classes = random_clients(3 * clients + 30, labels, clients)
    write_partition_figures(targets, owners, sorted(set(owners.tolist())), classes, tmp_path)
    for path in tmp_path.glob("*.png"):
        with Image.open(path) as image:
            assert 300 <= image.width <= 2600 and 300 <= image.height <= 3000, (path.name, image.size)
    written = json.loads((tmp_path / "heterogeneity.json").read_text(), parse_constant=pytest.fail)
    assert len(written["clients"]) == clients  # nothing is omitted


@pytest.mark.slow
@pytest.mark.figures
def test_plots_depend_on_the_data_only(tmp_path):
    targets, owners, classes = random_clients(300, 5, 4)
    seen = []
    for name, data in (("first", targets), ("again", targets), ("other", targets * (np.arange(300) % 3 > 0)[:, None])):
        (tmp_path / name).mkdir()
        write_partition_figures(data, owners, sorted(set(owners.tolist())), classes, tmp_path / name)
        seen.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert seen[0] == seen[1]
    assert set(seen[0]) == set(FILES)
    assert not [name for name in FILES if seen[0][name] == seen[2][name]]


def test_markdown_has_every_client_and_label_and_is_escaped():
    owners = np.where(OWNERS == "x", "a|b <i>", OWNERS)
    found = statistics(TARGETS, owners, ["a|b <i>", "y"], ["$x$", "*b*", "c"])
    text = as_markdown(found, ["$x$", "*b*", "c"], "site")
    assert f"| site | {' | '.join(HEADS)} |" in text
    assert r"| a\|b &lt;i> | 4 | 2 | 1.00 | 2.0 | 1 |" in text
    assert r"| a\|b &lt;i> | 2 | 2 | 0 |" in text
    assert r"| $x$ | \*b\* | +0.258 |" in text
    assert "3 of 3 pairs" in text


@pytest.mark.figures
@pytest.mark.parametrize("name", ["$\\bad{$", "price in $ and $$", "a$b", r"\$"])
def test_names_in_plots_are_not_read_as_formulas(tmp_path, name):
    label_client_heatmap(np.ones((2, 2)), np.ones(2), [name, "b"], ["x", name], tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 200


@pytest.mark.figures
def test_glyphs_that_no_font_has_are_logged(tmp_path, caplog, recwarn):
    label_client_heatmap(np.ones((1, 1)), np.ones(1), ["\U000103a0"], ["破"], tmp_path / "a.png")
    assert "a.png: no font here has" in caplog.text
    assert "\U000103a0" in caplog.text
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]
