"""Partitions: disjoint, complete, seeded, and large enough; their statistics against hand-derived numbers."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pydantic import ValidationError
from voc_trees import sound_tree

from models.errors import UserError
from tasks.data.clients import load_clients, require_match
from tasks.data.dataset import load_dataset
from tasks.data.heterogeneity import effective_clients, label_client_heatmap, label_counts, mean_js_distance
from tasks.data.ingest import IngestSettings, ingest
from tasks.data.partition import (
    PartitionSettings,
    client_names,
    dirichlet_label_sets,
    iid,
    label_set_groups,
    natural,
    partition,
)

TARGETS = hnp.arrays(np.uint8, st.tuples(st.integers(1, 60), st.integers(1, 5)), elements=st.integers(0, 1))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 80), st.integers(1, 12), st.integers(0, 5))
def test_iid_sizes_differ_by_one_at_most(n, clients, seed):
    owners = iid(n, clients, np.random.default_rng(seed))
    sizes = [int((owners == name).sum()) for name in client_names(clients)]
    assert sum(sizes) == len(owners) == n
    assert max(sizes) - min(sizes) <= 1
    assert (iid(n, clients, np.random.default_rng(seed)) == owners).all()


@settings(max_examples=120, deadline=None)
@given(TARGETS, st.integers(1, 8), st.sampled_from([1e-3, 0.05, 1.0, 1e6]), st.integers(1, 6), st.integers(0, 9))
def test_dirichlet_is_complete_seeded_and_fills_every_client(targets, clients, alpha, min_size, seed):
    if clients * min_size > len(targets):
        min_size = max(1, len(targets) // clients)
        clients = min(clients, len(targets))
    owners = dirichlet_label_sets(targets, clients, alpha, min_size, np.random.default_rng(seed))
    names = client_names(clients).tolist()
    assert set(owners.tolist()) <= set(names)
    sizes = [int((owners == name).sum()) for name in names]
    assert sum(sizes) == len(targets)
    assert min(sizes) >= min_size
    again = dirichlet_label_sets(targets.astype(bool), clients, alpha, min_size, np.random.default_rng(seed))
    assert (again == owners).all()


def test_alpha_decides_how_far_clients_differ():
    targets = (np.random.default_rng(0).random((600, 4)) < 0.3).astype(np.uint8)
    distances = []
    for alpha in (1e-3, 0.3, 3.0, 1e6):
        owners = dirichlet_label_sets(targets, 5, alpha, 10, np.random.default_rng(1))
        distances.append(mean_js_distance(label_counts(targets, owners, client_names(5).tolist()) + 1e-9))
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.2
    assert distances[-1] < 0.05


def test_tiny_alpha_gives_each_label_to_one_client():
    targets = np.repeat(np.eye(8, dtype=np.uint8), 50, axis=0)
    owners = dirichlet_label_sets(targets, 3, 1e-3, 1, np.random.default_rng(0))
    counts = label_counts(targets, owners, client_names(3).tolist())
    assert (counts.max(axis=0) >= 48).all()
    assert (counts.sum(axis=1) > 0).all()


def test_huge_alpha_gives_each_client_an_equal_part_of_each_label_set():
    targets = np.repeat([[1, 0], [0, 1]], 50, axis=0)
    owners = dirichlet_label_sets(targets, 5, 1e6, 1, np.random.default_rng(0))
    assert (abs(label_counts(targets, owners, client_names(5).tolist()) - 10) <= 1).all()


def test_rare_label_sets_join_the_group_of_their_rarest_label():
    # Label counts: 7, 5, 1. {0,1} is in 3 images and stays; {0,1,2} is in one and joins label 2, its rarest;
    # {1} is in one and stays as {1}; the image without labels is a group of its own.
    sets = [[1, 0, 0]] * 3 + [[1, 1, 0]] * 3 + [[1, 1, 1]] + [[0, 1, 0]] + [[0, 0, 0]]
    groups = label_set_groups(np.array(sets), smallest=3)
    assert groups.tolist() == [1, 1, 1, 2, 2, 2, 4, 3, 0]  # () < (0,) < (0, 1) < (1,) < (2,)
    # With a threshold of 4, {0,1} joins its rarer label 1.
    assert label_set_groups(np.array(sets), smallest=4).tolist() == [1, 1, 1, 2, 2, 2, 3, 2, 0]


def test_natural_keeps_site_names():
    assert natural(np.array(["b", "变电站 一", "b"])).tolist() == ["b", "变电站 一", "b"]


def test_names_sort_like_numbers():
    assert client_names(3).tolist() == ["client-000", "client-001", "client-002"]
    assert client_names(1001).tolist() == sorted(client_names(1001).tolist())


def test_js_distance_by_hand():
    # p = (1, 0), pooled q = (1/2, 1/2), middle m = (3/4, 1/4):
    # JS = 1/2 log2(4/3) + 1/2 (1/2 log2(2/3) + 1/2 log2(2)) = 0.311278, its root 0.557923; the same for (0, 1).
    assert mean_js_distance(np.array([[8, 0], [0, 8]])) == pytest.approx(0.557923, abs=1e-6)
    assert mean_js_distance(np.array([[1, 2, 3], [10, 20, 30], [0.1, 0.2, 0.3]])) == pytest.approx(0, abs=1e-7)


def test_effective_clients_by_hand():
    assert effective_clients(np.array([5, 5, 5])) == pytest.approx(3)
    assert effective_clients(np.array([3, 1])) == pytest.approx(1.6)  # 1 / (9/16 + 1/16)


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("sites")
    for start, (site, images) in enumerate((("north", 30), ("south", 20))):
        for i, path in enumerate(sorted((sound_tree(root / site, images) / "JPEGImages").iterdir())):
            picture = np.asarray(Image.open(path)).copy()
            picture[0, 0] = (start, i, 0)  # no two pictures of the two sites are equal
            Image.fromarray(picture).save(path)
    out = tmp_path_factory.mktemp("data") / "dataset"
    voc = {"root": root, "site_from": "folder"}
    ingest(IngestSettings(source="voc", image_size=32, voc=voc), out, seed=0)
    return out


@pytest.mark.parametrize(
    "changes", [{}, {"scheme": "iid", "clients": 4}, {"scheme": "dirichlet", "clients": 4, "alpha": 0.01}]
)
def test_written_clients_hold_each_training_image_once(dataset_dir, tmp_path, changes):
    chosen = PartitionSettings(min_size=5, **changes)
    summary = partition(dataset_dir, chosen, tmp_path / "clients", seed=2)
    data, clients = load_dataset(dataset_dir), load_clients(tmp_path / "clients")
    require_match(clients, data)
    assert clients.ids == sorted(clients.ids) == list(summary["clients"])
    assert (np.sort(np.concatenate([clients.indices[c] for c in clients.ids])) == data.indices("train")).all()
    for client, entry in summary["clients"].items():
        rows = clients.indices[client]
        assert entry["images"] == len(rows) >= 5
        assert list(entry["labels"].values()) == data.targets[rows].sum(axis=0).tolist()
        assert changes or (data.sites[rows] == client).all()
    table = pq.read_table(tmp_path / "clients/clients.parquet").to_pydict()
    assert [data.sample_ids[i] for i in table["index"]] == table["sample_id"]
    assert json.loads((tmp_path / "clients/clients.json").read_text()) == summary
    assert Image.open(tmp_path / "clients/label_client.png").size > (200, 150)
    again = partition(dataset_dir, chosen, tmp_path / "again", seed=2)
    assert again["digest"] == summary["digest"]
    if changes:
        assert partition(dataset_dir, chosen, tmp_path / "again", seed=3)["digest"] != summary["digest"]


def test_too_many_clients_and_too_small_sites(dataset_dir, tmp_path):
    with pytest.raises(UserError, match="too few training images for so many clients"):
        partition(dataset_dir, PartitionSettings(scheme="iid", clients=9, min_size=5), tmp_path / "c", seed=0)
    with pytest.raises(UserError, match=r"south: 1\d"):
        partition(dataset_dir, PartitionSettings(min_size=18), tmp_path / "c", seed=0)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("changes", [{"clients": 3}, {"scheme": "iid"}, {"scheme": "dirichlet", "clients": 0}])
def test_settings_that_contradict_themselves(changes):
    with pytest.raises(ValidationError):
        PartitionSettings(**changes)


def test_foreign_and_damaged_clients_are_refused(dataset_dir, tmp_path):
    out = tmp_path / "clients"
    with pytest.raises(UserError, match="fedscene data partition"):
        load_clients(out)
    summary = partition(dataset_dir, PartitionSettings(min_size=1), out, seed=0)
    text = (out / "clients.json").read_text()
    (out / "clients.json").write_text(text.replace(summary["digest"], "0" * 64))
    with pytest.raises(UserError, match="damaged"):
        load_clients(out)
    (out / "clients.json").write_text(text.replace(summary["dataset_digest"], "1" * 64))
    with pytest.raises(UserError, match="damaged"):
        load_clients(out)


@pytest.mark.parametrize("name", ["$\\bad{$", "price in $ and $$", "a$b", r"\$"])
def test_heatmap_reads_no_formula_in_names(tmp_path, name):
    label_client_heatmap(np.ones((2, 2)), np.ones(2), [name, "b"], ["x", name], tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").size > (200, 100)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_heatmap_takes_chinese_names_and_many_cells(tmp_path):
    counts = np.arange(12).reshape(3, 4)
    label_client_heatmap(counts, np.full(3, 20), ["甲", "b", "c"], ["破损", "x", "y", "z"], tmp_path / "a.png")
    label_client_heatmap(np.zeros((40, 17)), np.ones(40), ["k"] * 40, ["c"] * 17, tmp_path / "b.png")
    assert Image.open(tmp_path / "b.png").height > Image.open(tmp_path / "a.png").height
