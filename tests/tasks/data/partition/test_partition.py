"""Every scheme: disjoint, complete, seeded, large enough, whatever the order of rows; and the stage on disk."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pydantic import ValidationError

from models.errors import UserError
from tasks.data.clients import load_clients, require_match
from tasks.data.dataset import load_dataset
from tasks.data.ingest.ingest import IngestSettings, ingest
from tasks.data.partition import PartitionSettings, partition
from tasks.data.partition.divide import divide
from tasks.data.partition.schemes import client_names
from tasks.data.partition.settings import ClassesSettings
from tasks.data.partition.stage import figures
from tasks.data.statistics.heterogeneity import mean_js_distance
from tests.support.partition_data import in_memory, owners_of, random_dataset, shuffled
from tests.support.voc_trees import sound_tree

SCHEMES = (
    *("iid", "dirichlet", "dirichlet_label", "dirichlet_client", "shards", "classes_per_client", "quantity"),
    *("label_type", "mixed", "cluster", "semantic", "iterative"),
)
VARIANTS = [(scheme, {}) for scheme in SCHEMES] + [
    ("iid", {"iid": {"stratified": True}}),
    ("dirichlet", {"label_sets": {"merge": "jaccard", "cap": 2}}),
    ("dirichlet", {"label_sets": {"merge": "hamming", "smallest": 3}}),
    ("dirichlet_label", {"dirichlet_label": {"balance": True}, "primary": "first"}),
    ("dirichlet_client", {"dirichlet_client": {"concentration": "per_label"}}),
    ("quantity", {"quantity": {"kind": "lognormal", "sigma": 5.0}}),
    ("label_type", {"label_type": {"mixture": "dominant", "types": 3}}),
    ("cluster", {"cluster": {"weighting": "tfidf"}}),
]
TARGETS = hnp.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 4)), elements=st.integers(0, 1))
ALPHAS = st.sampled_from([1e-3, 0.05, 1.0, 1e6, float("inf")])


def scheme_settings(scheme, clients, **more):
    one = {"shards": {"per_client": 1}, "classes_per_client": {"classes": 1}}
    return PartitionSettings(scheme=scheme, clients=clients, **(one | {"resamples": 5} | more))


@pytest.mark.parametrize(("scheme", "more"), VARIANTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TARGETS, st.integers(1, 8), ALPHAS, st.integers(1, 6), st.integers(0, 9))
def test_every_scheme_is_disjoint_complete_reproducible_and_keeps_min_size(
    scheme, more, targets, clients, alpha, min_size, seed
):
    clients = min(clients, len(targets))
    min_size = min(min_size, len(targets) // clients)
    splits = np.where(np.arange(len(targets) + 3) < 3, "test", "train")
    data = in_memory(np.concatenate([targets[[0, -1, 0]], targets]), splits)
    options = scheme_settings(scheme, clients, alpha=alpha, min_size=min_size, **more)
    found = divide(data, options, seed)
    rows = np.concatenate([part.index for part in found.rows.values()])
    assert np.sort(rows).tolist() == data.indices("train").tolist()  # disjoint and complete
    assert list(found.rows) == client_names(clients).tolist()
    assert min(len(part.index) for part in found.rows.values()) >= min_size
    owners = owners_of(data, found)
    assert owners_of(data, divide(data, options, seed)) == owners
    other_order = shuffled(data, seed)
    assert owners_of(other_order, divide(other_order, options, seed)) == owners


@pytest.mark.parametrize(("scheme", "more"), VARIANTS)
def test_another_seed_gives_another_partition(scheme, more):
    data, options = random_dataset(200), scheme_settings(scheme, 5, alpha=0.5, min_size=5, **more)
    options = options.model_copy(update={"classes_per_client": ClassesSettings(classes=2)})
    assert owners_of(data, divide(data, options, 1)) != owners_of(data, divide(data, options, 2))


@pytest.mark.parametrize("alpha", [1e-3, float("inf")])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_thousand_clients_all_reach_min_size(scheme, alpha):
    data = random_dataset(2100)
    found = divide(data, scheme_settings(scheme, 1000, alpha=alpha, min_size=2), 0)
    sizes = [len(rows.index) for rows in found.rows.values()]
    assert len(sizes) == 1000
    assert sum(sizes) == 2100
    assert min(sizes) >= 2


@pytest.mark.parametrize(
    "scheme", ["dirichlet", "dirichlet_label", "dirichlet_client", "label_type", "mixed", "cluster", "iterative"]
)
def test_alpha_decides_how_far_clients_differ(scheme):
    data, distances = random_dataset(800, labels=4), []
    for alpha in (1e-2, 0.5, float("inf")):
        options = scheme_settings(scheme, 5, alpha=alpha, min_size=10, quantity={"alpha": 10.0})
        distances.append(mean_js_distance(divide(data, options, 1).assignment.allocation.T + 1e-9))
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 2 * distances[-1]
    assert distances[-1] < 0.13


def test_small_alpha_gives_clients_of_equal_size_with_nearly_one_class():
    # Dirichlet(0.01) over 6 labels: the largest share is 0.97 in the mean; 12 clients use labels up, so less here.
    data = in_memory(np.eye(6, dtype=np.uint8)[np.arange(1200) % 6])
    shares = []
    for seed in range(20):
        options = scheme_settings("dirichlet_client", 12, alpha=0.01, dirichlet_client={"concentration": "per_label"})
        allocation = divide(data, options, seed).assignment.allocation
        assert allocation.sum(axis=0).tolist() == [100] * 12
        shares.append(allocation.max(axis=0).mean() / 100)
    assert 0.75 < np.mean(shares) < 0.97


def test_small_alpha_and_many_reassigned_images_are_warned_of():
    data = random_dataset(400)
    little = divide(data, scheme_settings("dirichlet_label", 40, alpha=1e-3, min_size=8), 0).assignment
    assert len(little.warnings) == 2
    assert f"{little.repair.reassigned} of 400 images" in little.warnings[1]
    assert little.repair.resamples == 5
    assert not divide(data, scheme_settings("dirichlet_label", 4, alpha=1.0, min_size=2), 0).assignment.warnings


def test_natural_keeps_site_names_and_refuses_or_drops_small_sites():
    sites = ["变电站 一"] * 6 + ["b"] * 5 + ["c"] * 2
    data = in_memory(np.ones((13, 2)), sites=sites, splits=["train"] * 12 + ["test"])
    with pytest.raises(UserError, match=r"found: c: 1\n.*hint.*drop"):
        divide(data, PartitionSettings(min_size=5), 0)
    options = PartitionSettings(min_size=5, natural={"small": "drop"}, local={"scheme": "matched"})
    found = divide(data, options, 0)
    assert {client: rows.index.tolist() for client, rows in found.rows.items()} == {
        "b": [6, 7, 8, 9, 10],
        "变电站 一": [0, 1, 2, 3, 4, 5],
    }
    assert found.assignment.dropped == {"c": 1}
    with pytest.raises(UserError, match="too few training images"):
        divide(data, PartitionSettings(min_size=9, natural={"small": "drop"}), 0)


def test_names_sort_like_numbers():
    assert client_names(3).tolist() == ["client-000", "client-001", "client-002"]
    assert client_names(1001).tolist() == sorted(client_names(1001).tolist())


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("sites")
    for start, (site, images) in enumerate((("north", 30), ("south", 20))):
        for i, path in enumerate(sorted((sound_tree(root / site, images) / "JPEGImages").iterdir())):
            image = np.asarray(Image.open(path)).copy()
            image[0, 0] = (start, i, 0)  # no two images of the two sites are equal
            Image.fromarray(image).save(path)
    out = tmp_path_factory.mktemp("data") / "dataset"
    ingest(IngestSettings(source="voc", path=root, image_size=32, site={"rule": "folder"}), out, seed=0)
    return out


@pytest.mark.parametrize("local", ["global", "local", "matched"])
def test_a_share_of_each_label_is_divided(local):
    targets = np.eye(2, dtype=np.uint8)[
        (np.arange(130) % 13 == 0).astype(int)
    ]  # 120 images of the first, 10 of the other
    splits = np.array(["test", "train"])[(np.arange(130) >= 13).astype(int)]
    data, options = (
        in_memory(targets, splits),
        {"scheme": "iid", "clients": 3, "min_size": 1, "local": {"scheme": local}},
    )

    def divided(share, seed=3):
        rows = divide(data, PartitionSettings(**options, share=share), seed).rows.values()
        owned = np.concatenate([own.columns[0] for own in rows])
        return owned[splits[owned] == "train"]

    third = divided(1 / 3)
    assert targets[third].sum(axis=0).tolist() == [36, 3] and len(set(third)) == 39  # of 108 and 9
    assert sorted(divided(1 / 3)) == sorted(third) != sorted(divided(1 / 3, seed=4))
    assert len(divided(1.0)) == 117


@pytest.mark.parametrize("stratified", [False, True])
def test_iid_sizes_are_in_the_asked_proportion(stratified):
    targets = np.eye(2, dtype=np.uint8)[np.arange(120) % 2]
    data = in_memory(targets, np.full(120, "train"))
    options = {"clients": 3, "min_size": 1, "iid": {"sizes": [8, 1, 1], "stratified": stratified}}
    rows = divide(data, PartitionSettings(scheme="iid", **options), 3).rows
    counts = np.array([targets[rows[client].columns[0]].sum(axis=0) for client in sorted(rows)])
    assert counts.sum(axis=1).tolist() == [96, 12, 12]
    assert not stratified or counts.tolist() == [[48, 48], [6, 6], [6, 6]]
    with pytest.raises(ValidationError, match="must list the sizes of 4 clients"):
        PartitionSettings(scheme="iid", clients=4, iid={"sizes": [8, 1, 1]})


@pytest.mark.parametrize("changes", [{}, *({"scheme": s, "clients": 3, "alpha": 0.1} for s in ("iid", "semantic"))])
def test_written_clients_hold_each_training_image_once(dataset_dir, tmp_path, changes):
    options = PartitionSettings(min_size=5, **changes)
    summary = partition(dataset_dir, options, tmp_path / "clients", seed=2)
    data, clients = load_dataset(dataset_dir), load_clients(tmp_path / "clients")
    require_match(clients, data)
    assert clients.ids == sorted(clients.ids) == list(summary["clients"])
    assert (np.sort(np.concatenate([clients.indices[c] for c in clients.ids])) == data.indices("train")).all()
    for client, entry in summary["clients"].items():
        rows = clients.indices[client]
        assert entry["images"] == entry["labelled"] == entry["splits"]["train"] == len(rows) >= 5
        assert list(entry["labels"].values()) == data.targets[rows].sum(axis=0).tolist()
        assert changes or (data.sites[rows] == client).all()
    table = pq.read_table(tmp_path / "clients/clients.parquet").to_pydict()
    assert [data.sample_ids[i] for i in table["index"]] == table["sample_id"]
    assert json.loads((tmp_path / "clients/clients.json").read_text()) == summary
    assert Image.open(tmp_path / "clients/label_client.png").size > (200, 150)
    shown = figures(summary)
    assert shown["clients"] == len(clients.ids)
    assert figures(summary | {"repair": {"redraws": 1, "moved": 3}})["images_reassigned"] == 3, "the former keys"
    assert shown["smallest"] == min(map(len, clients.indices.values()))
    again = partition(dataset_dir, options, tmp_path / "again", seed=2)
    assert again["digest"] == summary["digest"]
    if changes:
        assert partition(dataset_dir, options, tmp_path / "again", seed=3)["digest"] != summary["digest"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "iid", "clients": 9, "min_size": 5}, "too few training images for so many clients"),
        ({"min_size": 18}, r"south: 1\d"),
        ({"scheme": "shards", "clients": 5, "min_size": 2, "shards": {"per_client": 9}}, "partition.shards.per_client"),
        (
            {"scheme": "classes_per_client", "clients": 5, "min_size": 2, "classes_per_client": {"classes": 9}},
            "partition.classes_per_client.classes",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(dataset_dir, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        partition(dataset_dir, PartitionSettings(**changes), tmp_path / "c", seed=0)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "changes",
    [
        *({"clients": 3}, {"scheme": "iid"}, {"scheme": "dirichlet", "clients": 0}, {"alpha": 0}, {"alpha": -1}),
        *({"alpha": float("nan")}, {"scheme": "pathological"}, {"local": {"val": 0.5, "test": 0.5}}),
        *({"labelled": {"rounds_per_chunk": 2}}, {"labelled": {"where": "server", "balanced": True}}),
        *({"labelled": {"where": "clients", "balanced": True}}, {"quantity": {"alpha": float("inf")}}),
    ],
)
def test_settings_that_contradict_themselves(changes):
    with pytest.raises(ValidationError):
        PartitionSettings(**changes)


def test_infinite_alpha_goes_through_json_and_back():
    options = PartitionSettings(alpha=float("inf"))
    dumped = json.loads(json.dumps(options.model_dump(mode="json"), allow_nan=False))
    assert PartitionSettings(**dumped) == options


def test_foreign_and_damaged_clients_are_refused(dataset_dir, tmp_path):
    out = tmp_path / "clients"
    with pytest.raises(UserError, match="fedscene data partition"):
        load_clients(out)
    summary = partition(dataset_dir, PartitionSettings(min_size=1), out, seed=0)
    text = (out / "clients.json").read_text()
    for old, new in ((summary["digest"], "0" * 64), (summary["dataset_digest"], "1" * 64)):
        (out / "clients.json").write_text(text.replace(old, new))
        with pytest.raises(UserError, match="damaged"):
            load_clients(out)
