"""The files of a source: scanned once for a whole ingest, and each time anew otherwise."""

import pytest

from tasks.data.formats.shared import tree
from tasks.data.formats.shared.tree import scan, shared_scans
from tasks.data.ingest.ingest import IngestSettings, ingest
from tests.support.image_trees import tree as make_tree
from tests.support.voc_trees import encoded, make_image

FILES = {
    f"{label}/{number}.png": encoded(make_image(10 * row + number))
    for row, label in enumerate("ab")
    for number in range(5)
}
SETTINGS = IngestSettings(source="folder")


@pytest.fixture
def root(tmp_path):
    return make_tree(tmp_path / "src", FILES)


def test_an_ingest_walks_through_its_source_once(root, tmp_path, monkeypatch):
    walked, walk = [], tree.walk_files
    monkeypatch.setattr(tree, "walk_files", lambda folder: walked.append(folder) or walk(folder))
    for turn in (1, 2):
        assert ingest(SETTINGS.model_copy(update={"path": root}), tmp_path / "out", seed=0)["images"] == 10
        assert walked == [root] * turn


def test_new_files_are_seen_by_the_next_scan_unless_scans_are_shared(root):
    with shared_scans():
        first = scan(root, SETTINGS)
        (root / "a/new.png").write_bytes(FILES["a/0.png"])
        first.images.clear()
        assert len(scan(root, SETTINGS).images) == 10
        assert len(scan(root / "a", SETTINGS).images) == 6
        assert len(scan(root, SETTINGS.model_copy(update={"exclude": ["b"]})).images) == 6
    assert len(scan(root, SETTINGS).images) == 11
