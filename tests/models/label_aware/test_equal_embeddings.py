"""No two labels have equal embeddings: made apart where they are made from letters, refused by name where not."""

import math

import pytest
import torch

from models.errors import UserError
from models.label_aware.label_embeddings import embed_labels, embed_states, write_label_file
from models.settings.model import LabelSettings


def angles(rows):
    return rows @ rows.T


ALIKE = [
    ["red", "red-red", "red red red"], ["door open", "open door"], ["a", "aa", "a a"],
    ["left left right", "left right"], ["on off on", "off on off", "on on off"], ["红 色", "色 红", "红色"],
]  # fmt: skip


@pytest.mark.parametrize("names", ALIKE, ids=lambda names: names[0])
@pytest.mark.parametrize("dim", [64, 512])
def test_labels_of_the_same_letters_have_different_embeddings(names, dim):
    cosines = angles(embed_labels(LabelSettings(), names, dim)) - torch.eye(len(names))
    assert cosines.max() < 0.995


@pytest.mark.parametrize(("angle", "refused"), [(0.0, True), (1e-4, True), (2e-3, False), (1e-2, False)])
def test_labels_with_nearly_equal_embeddings_are_refused_by_name(tmp_path, angle, refused):
    rows = torch.eye(4, dtype=torch.float64)
    rows[3] = 7.0 * torch.tensor([0.0, math.cos(angle), math.sin(angle), 0.0])  # cosine to row 1: 1 - angle^2 / 2
    write_label_file(tmp_path / "l.safetensors", ["rust", "crack", "dent", "fissure"], rows)
    settings = LabelSettings(source="file", file=tmp_path / "l.safetensors")
    if not refused:
        assert embed_labels(settings, ["rust", "crack", "dent", "fissure"], 4).shape == (4, 4)
        assert embed_labels(settings, ["rust", "crack", "dent", "fissure"], 64).shape == (4, 64)
        return
    with pytest.raises(UserError, match=r"equal embeddings[\s\S]*found: crack and fissure\n[\s\S]*l\.safetensors"):
        embed_labels(settings, ["rust", "crack", "dent", "fissure"], 4)
    assert embed_labels(settings, ["rust", "crack", "dent"], 4).shape == (3, 4)  # the pair is not asked for


def test_equal_state_embeddings_are_refused(tmp_path):
    write_label_file(tmp_path / "l.safetensors", ["negative", "positive"], torch.ones(2, 3))
    with pytest.raises(UserError, match=r"two state words[\s\S]*have equal embeddings[\s\S]*negative and positive"):
        embed_states(LabelSettings(source="file", file=tmp_path / "l.safetensors"), 3)
