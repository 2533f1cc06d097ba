"""Scheme classes_per_client with the classes of each client listed."""

import numpy as np
import pytest
from pydantic import ValidationError

from models.errors import UserError
from tasks.data.partition import PartitionSettings, allocations
from tasks.data.partition.divide import divide
from tasks.data.partition.settings import ClassesSettings
from tests.support.partition_data import in_memory

FLOWERS_DRAW = [[0, 7], [1, 6], [2, 4], [3, 4], [4, 8], [5, 0], [6, 2], [7, 0], [8, 5], [9, 7]]


def test_a_listed_draw_gives_each_party_its_classes():
    data = in_memory(np.eye(10, dtype=np.uint8)[np.arange(6000) % 10], np.full(6000, "train"))
    options = PartitionSettings(
        scheme="classes_per_client",
        clients=10,
        classes_per_client={"classes": 2, "choice": "listed", "listed": FLOWERS_DRAW},
    )
    rows = divide(data, options, 3).rows
    counts = np.array([data.targets[part.chosen("train")].sum(axis=0) for part in rows.values()], dtype=int)
    assert [np.flatnonzero(row).tolist() for row in counts] == [sorted(classes) for classes in FLOWERS_DRAW]
    assert counts[:, 0].tolist() == [200, 0, 0, 0, 0, 200, 0, 200, 0, 0]
    assert counts.sum(axis=0).tolist() == [600] * 10


def test_a_listed_class_without_owner_goes_to_the_smallest_party():
    counts = allocations.by_classes(
        np.array([10, 30, 5]), 2, ClassesSettings(classes=1, choice="listed", listed=[[1], [0]]), None
    )
    assert counts.tolist() == [[0, 10], [30, 0], [0, 5]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listed": [[0, 0]] * 10}, r"client 0 must have 1 to 2 different labels \(classes\), found \[0, 0\]"),
        ({"listed": [[]] * 10}, r"client 0 must have 1 to 2 different labels"),
        ({"listed": [[0, 1]] * 9}, r"must list the labels of 10 clients \(clients\), found 9"),
        ({"listed": None}, "set both or neither"),
        ({"choice": "random", "listed": [[0, 1]] * 10}, "set both or neither"),
    ],
)
def test_a_listed_draw_that_does_not_fit_is_refused(changes, message):
    classes = {"classes": 2, "choice": "listed", "listed": FLOWERS_DRAW} | changes
    with pytest.raises(ValidationError, match=message):
        PartitionSettings(scheme="classes_per_client", clients=10, classes_per_client=classes)


def test_a_listed_label_without_images_is_refused():
    options = ClassesSettings(classes=1, choice="listed", listed=[[1], [7]])
    with pytest.raises(UserError, match="names labels without images") as error:
        allocations.by_classes(np.array([0, 30, 5]), 2, options, None)
    assert error.value.found == "7"
