"""The split: shares per label, small sets, groups, and lists given by the source."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import UserError
from tasks.data.dataset import load_dataset
from tasks.data.formats.synthetic import defects
from tasks.data.formats.synthetic.settings import SyntheticSettings
from tasks.data.formats.synthetic.sites import site_counts
from tasks.data.ingest.ingest import IngestSettings, ingest
from tasks.data.split import given_split, stratified_split
from tests.support.voc_trees import put, sound_tree

FRACTIONS = {"train": 0.7, "val": 0.1, "test": 0.2}


def test_every_label_has_its_share_in_every_split():
    rng = np.random.default_rng(0)
    targets = (rng.random((1000, 6)) < [0.5, 0.3, 0.2, 0.1, 0.05, 0.03]).astype(np.uint8)
    splits = stratified_split(targets, FRACTIONS, seed=1)
    for name, fraction in FRACTIONS.items():
        in_split = splits == name
        assert abs(in_split.sum() - 1000 * fraction) <= 5
        wanted = targets.sum(axis=0) * fraction
        assert (abs(targets[in_split].sum(axis=0) - wanted) <= np.maximum(2, 0.06 * wanted)).all()


def test_images_of_one_label_are_divided_exactly():
    # 20 images of one label and shares 0.7, 0.1, 0.2: 14, 2 and 4, whatever the seed.
    for seed in range(5):
        splits = stratified_split(np.ones((20, 1)), FRACTIONS, seed)
        assert [int((splits == name).sum()) for name in FRACTIONS] == [14, 2, 4]


def test_the_split_depends_on_the_seed_and_not_on_the_global_generator():
    targets = (np.random.default_rng(3).random((200, 4)) < 0.4).astype(np.uint8)
    np.random.seed(0)
    first = stratified_split(targets, FRACTIONS, seed=5)
    state = np.random.get_state()[1].copy()
    np.random.seed(1)
    assert (stratified_split(targets, FRACTIONS, seed=5) == first).all()
    assert (stratified_split(targets, FRACTIONS, seed=6) != first).any()
    np.random.seed(0)
    assert (np.random.get_state()[1] == state).all()


def test_a_label_with_one_image_goes_to_train():
    targets = np.zeros((40, 3), dtype=np.uint8)
    targets[:, 0] = 1
    targets[5, 1] = targets[9, 2] = 1
    for seed in range(10):
        splits = stratified_split(targets, {"train": 0.2, "val": 0.4, "test": 0.4}, seed)
        assert splits[5] == splits[9] == "train"
        assert (splits == "train").sum() == 8


def test_small_sets_have_an_image_in_every_split_if_train_keeps_one():
    found = [stratified_split(np.ones((n, 1)), FRACTIONS, 0).tolist() for n in range(5)]
    assert [len(set(splits)) for splits in found] == [0, 1, 2, 3, 3]
    assert all("train" in splits for splits in found[1:])
    no_val = stratified_split(np.ones((3, 1)), {"train": 0.8, "val": 0.0, "test": 0.2}, 0)
    assert sorted(no_val.tolist()) == ["test", "train", "train"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.booleans(), min_size=3, max_size=3), st.integers(0, 8)), min_size=1, max_size=30),
    st.integers(0, 3),
)
def test_groups_stay_together(images, seed):
    targets = np.array([labels for labels, _ in images], dtype=np.uint8)
    groups = np.array([f"{(7 * group) % 9}" for _, group in images])
    splits = stratified_split(targets, FRACTIONS, seed, groups)
    assert len(splits) == len(images)
    assert all(len(set(splits[groups == group])) == 1 for group in set(groups))
    assert "train" in splits
    renamed = np.array([f"x{99 - int(group)}" for group in groups])
    assert (stratified_split(targets, FRACTIONS, seed, renamed) == splits).all()


def test_a_given_split_is_checked_for_completeness():
    assert given_split(["test", "train"], ["a", "b"], "src").tolist() == ["test", "train"]
    with pytest.raises(UserError, match=r"2 of 3 without one: a\.png, c\.png"):
        given_split([None, "train", "extra"], ["a.png", "b.png", "c.png"], "src")
    with pytest.raises(UserError, match="no image for training"):
        given_split(["test"], ["a.png"], "src")


def test_ingest_follows_the_lists_of_the_source(tmp_path):
    root = sound_tree(tmp_path / "src", images=6)
    lists = root / "ImageSets/Main"
    put(lists / "train.txt", b"000\n001\n002\n")
    put(lists / "val.txt", b"003\n")
    put(lists / "test.txt", b"004\n005\n")
    settings_ = IngestSettings(source="voc", path=root, split={"scheme": "given"})
    ingest(settings_, tmp_path / "out", seed=0)
    assert load_dataset(tmp_path / "out").splits.tolist() == ["train"] * 3 + ["val"] + ["test"] * 2
    (lists / "val.txt").unlink()
    with pytest.raises(UserError, match=r"JPEGImages/003\.png"):
        ingest(settings_, tmp_path / "out", seed=0)


def test_sites_are_divided_in_the_same_shares(tmp_path):
    for number, site in enumerate(("a", "b")):
        root = tmp_path / "src" / site
        sound_tree(root, images=20)
        for i, path in enumerate(sorted((root / "JPEGImages").iterdir())):
            path.write_bytes(path.read_bytes() + bytes([number, i]))  # other bytes, so that they are no duplicates
    settings_ = IngestSettings(source="voc", path=tmp_path / "src", site={"rule": "folder"})
    # The pixels of a/NNN and b/NNN are equal, so each pair is in one split and the sites are divided equally.
    ingest(settings_, tmp_path / "out", seed=0)
    data = load_dataset(tmp_path / "out")
    counts = {site: [int(((data.splits == s) & (data.sites == site)).sum()) for s in FRACTIONS] for site in "ab"}
    assert counts == {"a": [14, 2, 4], "b": [14, 2, 4]}


def test_label_shares_are_far_better_than_those_of_a_random_split():
    settings = SyntheticSettings(set="defects", images=4000)
    targets = np.vstack([defects.SET.sample_labels(settings, 0, site, n) for site, n in site_counts(settings).items()])

    def worst(splits):
        shares = [targets[splits == name].mean(axis=0) / targets.mean(axis=0) for name in ("train", "val", "test")]
        return np.abs(np.array(shares) - 1).max()

    for seed in range(3):
        at_random = np.random.default_rng(seed).choice(["train", "val", "test"], len(targets), p=[0.7, 0.1, 0.2])
        ours = stratified_split(targets, {"train": 0.7, "val": 0.1, "test": 0.2}, seed)
        assert worst(at_random) > 5 * worst(ours)
