"""Seeds derived from keys."""

import hashlib
import threading

import numpy as np
import torch

from tasks.core.randomness import derive_seed, numpy_generator, torch_generator

PLACES = [
    (7, "batch order", 1, 1, "a"),
    (8, "batch order", 1, 1, "a"),
    (7, "local draws", 1, 1, "a"),
    (7, "batch order", 2, 1, "a"),
    (7, "batch order", 1, 2, "a"),
    (7, "batch order", 1, 1, "b"),
    (7, "batch order", 11, 1, ""),
    (7, "batch order", 1, 11, ""),
    (7, "batch order1", 1, 1, ""),
]


def test_an_address_is_the_first_63_bits_of_a_hash():
    digest = hashlib.sha256("\x1f".join(["7", "batch order", "2", "3", "client-001"]).encode()).hexdigest()
    assert derive_seed(7, "batch order", 2, 3, "client-001") == int(digest[:16], 16) // 2


def test_an_address_never_changes():
    # A changed number would silently give every old run other draws.
    assert derive_seed(7, "sample clients", 3) == 9216469991995290475


def test_every_part_of_an_address_counts():
    numbers = [derive_seed(*place) for place in PLACES]
    assert len(set(numbers)) == len(PLACES)
    assert all(0 <= n < 2**63 for n in numbers)
    assert len({tuple(numpy_generator(*p).integers(0, 1000, 5).tolist()) for p in PLACES}) == len(PLACES)
    draws = {tuple(torch.randint(1000, (5,), generator=torch_generator(*p)).tolist()) for p in PLACES}
    assert len(draws) == len(PLACES)


def test_equal_addresses_draw_equal_numbers_whatever_ran_before():
    first = numpy_generator(1, "x", client="c").normal(size=4)
    torch_first = torch.rand(4, generator=torch_generator(1, "x", client="c"))
    np.random.default_rng(0).normal(size=100)
    torch.rand(100)
    found = []

    def draw():
        numpy_generator(1, "y").normal(size=3)
        found.append(numpy_generator(1, "x", client="c").normal(size=4))

    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    assert np.array_equal(found[0], first)
    assert torch.equal(torch.rand(4, generator=torch_generator(1, "x", client="c")), torch_first)


def test_the_global_generators_stay_untouched():
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()
    numpy_generator(3, "x").normal(size=5)
    torch.rand(5, generator=torch_generator(3, "x"))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], legacy)


def test_numbers_given_as_numpy_values_are_the_same_address():
    assert derive_seed(np.int64(7), "x", np.int64(2), np.int32(3), np.str_("a")) == derive_seed(7, "x", 2, 3, "a")
