"""Images that two data sets share, looked up in a sample of ids."""

import hashlib

import pytest

from tasks.data.overlap import Overlap, overlap, sample_of


def ids(start, stop):
    return [hashlib.sha256(str(number).encode()).hexdigest()[:16] for number in range(start, stop)]


def test_small_sets_are_compared_exactly():
    sample = sample_of(ids(0, 50))
    assert overlap(sample, True, ids(40, 60)) == Overlap(10, 20, exact=True)
    assert overlap(sample, True, ids(50, 60)) == Overlap(0, 10, exact=True)
    assert overlap(sample_of([]), True, ids(0, 3)) == Overlap(0, 3, exact=True)


@pytest.mark.parametrize("shared", [0.0, 0.1, 0.5, 1.0])
def test_the_overlap_of_large_sets_is_estimated(shared):
    sample = sample_of(ids(0, 60_000))
    assert len(sample) == 1024
    own = [*ids(0, round(10_000 * shared)), *ids(70_000, 80_000 - round(10_000 * shared))]
    found = overlap(sample, False, own)
    # 1,024 / 60,000 of 10,000 images, 170, are looked up: a standard deviation of at most 0.038
    assert found.images / found.of == pytest.approx(shared, abs=0.12 if 0 < shared < 1 else 0)
    assert not found.exact


def test_the_sample_does_not_depend_on_the_order():
    assert sample_of(reversed(ids(0, 3000))) == sample_of(ids(0, 3000) * 2)
