"""What a client trains on: the stream chunk in use, pools of any size, hidden labels that only count."""

import numpy as np
import pytest
import torch

from tasks.client.hidden_labels import HiddenLabels
from tasks.client.local_data import SERVER, chunk_in_use, local_data
from tasks.data.clients import load_clients
from tasks.data.dataset import load_dataset
from tests.support.rounds import make_context, partitioned

STREAM = {"where": "clients", "per_class": 1, "streaming": 3, "rounds_per_chunk": 2}


@pytest.fixture
def streamed(tiny_data, tmp_path):
    """The tiny data set with some labels of each client hidden, their images in three chunks of two rounds."""
    return partitioned(tiny_data.dataset, tmp_path / "clients", scheme="iid", clients=2, labelled=STREAM)


def test_one_chunk_is_in_use_at_a_time_and_all_of_them_in_turn(streamed, tmp_path):
    context, _ = make_context(streamed, tmp_path / "run")
    clients = load_clients(streamed.clients)
    for client in streamed.ids:
        whole = local_data(context, client)
        parts = [whole.in_round(number) for number in range(1, 13)]
        rows = [part.unlabelled.rows.tolist() for part in parts]
        assert rows[0] == rows[1] == rows[6] == rows[7] != rows[2] == rows[3] != rows[4] == rows[5]
        assert sorted(rows[0] + rows[2] + rows[4]) == clients.rows(client, "train", "unlabelled").tolist()
        for part in parts:
            assert part.images.rows.tolist() == whole.images.rows.tolist()
            assert len(part.hidden) == len(part.unlabelled) == len(part.chunks) > 0
            assert [part.count(kind) for kind in ("labelled", "unlabelled", "both")] == [
                whole.count(kind) for kind in ("labelled", "unlabelled", "both")
            ]


def test_a_pool_smaller_than_the_number_of_chunks_repeats_its_chunks():
    chunks = np.array([4, 1])
    assert [chunk_in_use(chunks, number, 5, 1) for number in range(1, 11)] == [1, 4, 1, 4, 1, 1, 4, 1, 4, 1]
    assert [chunk_in_use(np.array([0, 1, 2]), number, 3, 2) for number in range(1, 8)] == [0, 0, 1, 1, 2, 2, 0]


def test_without_an_unlabelled_image_every_round_is_the_same(tiny_data, tmp_path):
    context, _ = make_context(tiny_data, tmp_path / "run")
    data = local_data(context, tiny_data.ids[0])
    assert data.in_round(7) is data and len(data.unlabelled) == len(data.hidden) == 0
    assert data.hidden.score(np.zeros(0, dtype=np.int64), np.zeros((0, 16))) == (0.0, 0.0)
    assert data.revealed().images.rows.tolist() == data.images.rows.tolist()


def test_hidden_labels_count_right_images_or_entries_and_skip_unknown_ones():
    hidden = HiddenLabels(
        np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]], np.uint8), np.array([1, 1, 0, 1], bool)
    )
    guess = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    rows = torch.tensor([3, 0, 2, 1])
    assert hidden.score(rows, guess) == (2.0, 3.0)  # image 2 is unknown, image 1 is only half right
    assert hidden.score(rows, guess, torch.tensor([True, False, True, True])) == (1.0, 2.0)
    entries = torch.tensor([[True, False, True], [False] * 3, [True] * 3, [True, True, True]])
    assert hidden.score(rows, guess, entries) == (2.0 + 2.0, 2.0 + 3.0)
    assert hidden.subset(np.array([1])).score(np.array([0]), np.array([[0, 1, 1]])) == (1.0, 1.0)


def test_revealed_images_have_their_true_labels_after_the_labelled_ones(streamed, tmp_path):
    context, _ = make_context(streamed, tmp_path / "run")
    dataset, client = load_dataset(streamed.dataset), streamed.ids[1]
    part = local_data(context, client).in_round(3)
    shown = part.revealed()
    rows = [*part.images.rows.tolist(), *part.unlabelled.rows.tolist()]
    assert shown.images.rows.tolist() == rows and (shown.targets == dataset.targets[rows]).all()
    assert (shown.images[:] == dataset.images[rows]).all()
    assert shown.count("unlabelled") == 0 and shown.count("both") == len(rows)


def test_the_server_has_no_unlabelled_images(tiny_data, tmp_path):
    data = partitioned(tiny_data.dataset, tmp_path / "c", scheme="iid", labelled={"where": "server", "per_class": 1})
    context, _ = make_context(data, tmp_path / "run")
    at_server = local_data(context, SERVER)
    assert len(at_server.images) > 0 and len(at_server.unlabelled) == len(at_server.hidden) == 0
    assert at_server.in_round(3) is at_server
