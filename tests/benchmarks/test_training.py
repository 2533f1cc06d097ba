"""The workloads' images, jobs and the division of clients among processes."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.training.hand_loop_two import divide, flat, unflat
from benchmarks.training.images import write_images
from benchmarks.training.job import Job
from benchmarks.workloads.flair_mini import BATCH, CLIENTS, sizes


def test_images_and_their_table(tmp_path):
    write_images(tmp_path / "images", [3, 2], 16, 4, test=2, several_labels=True)
    with (tmp_path / "images" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["split"] for row in rows] == ["train"] * 5 + ["test"] * 2
    assert [row["site"] for row in rows] == ["client-00"] * 3 + ["client-01"] * 2 + ["client-00"] * 2
    assert all(1 <= len(row["labels"].split(";")) <= 3 for row in rows)
    assert Image.open(tmp_path / "images" / rows[0]["image"]).size == (16, 16)


def test_the_largest_clients_come_first_and_go_where_least_is_to_do():
    assert divide({"a": 1, "b": 5, "c": 3, "d": 3}, 2) == [["b", "a"], ["c", "d"]]


def test_clients_of_flair_mini_have_no_last_batch_of_one_image():
    found = sizes(CLIENTS, 200)
    assert len(found) == CLIENTS and found[0] == 1 and found[-1] == 200 and min(found) == 1
    assert all(size == 1 or size % BATCH != 1 for size in found)


@pytest.fixture
def job(tmp_path):
    facts = {"plan": {"1": ["a", "b"]}, "rows": {"a": [4, 5, 6, 7, 8], "b": [0, 1]}, "batch_size": 2, "lr": 0.1,
             "kind": "single_label", "test_rows": [0, 1]}  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(facts))
    np.save(tmp_path / "images.npy", np.arange(9 * 3 * 4, dtype=np.uint8).reshape(9, 3, 2, 2))
    np.save(tmp_path / "targets.npy", np.eye(9, 3, dtype=np.uint8))
    np.savez(tmp_path / "orders.npz", **{"1/a": np.array([[4, 3, 2, 1, 0]]), "1/b": np.array([[1, 0]])})
    return Job(tmp_path)


def test_batches_in_the_planned_order_without_a_single_image_at_the_end(job):
    assert [rows.tolist() for rows in job.batches(1, "a")] == [[8, 7], [6, 5, 4]]
    assert job.weights(1) == {"a": pytest.approx(5 / 7), "b": pytest.approx(2 / 7)}
    images, targets = job.tensors(np.array([1]))
    assert images.max() == pytest.approx(23 / 255) and targets.tolist() == [[0.0, 1.0, 0.0]]


def test_a_step_of_the_hand_written_loop(job):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3, bias=False))
    with torch.no_grad():
        model[1].weight.zero_()
    job.train(model, 1, "b")  # one batch: rows 1 and 0, logits 0, so softmax 1/3
    images, targets = job.tensors(np.array([1, 0]))
    gradient = (torch.full((2, 3), 1 / 3) - targets).T @ images.flatten(1) / 2
    torch.testing.assert_close(model[1].weight.detach(), -0.1 * gradient)


def test_flat_and_back():
    tensors = [torch.rand(2, 3), torch.rand(4)]
    back = unflat(flat(tensors), tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, back, strict=True))
