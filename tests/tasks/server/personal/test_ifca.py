"""IFCA's choice by the lowest loss, and its further initial models."""

import math

import pytest
import torch

from models.errors import UserError
from tasks.server.personal.ifca import choose, further_model, with_shared_parts
from tests.support.rounds import make_context


def test_clients_choose_the_model_with_their_lowest_loss_the_first_of_equals():
    losses = [{"a": 0.9, "b": 0.4, "c": 0.5}, {"a": 0.2, "b": 0.6, "c": 0.5}, {"a": math.nan, "b": 0.3, "c": 0.7}]
    assert choose(losses) == {"a": 1, "b": 2, "c": 0}


def test_a_client_without_a_finite_loss_is_named():
    with pytest.raises(UserError, match=r"no finite loss with any model(.|\n)*client b"):
        choose([{"a": 0.1, "b": math.nan}, {"a": 0.2, "b": math.inf}])


@pytest.mark.slow
def test_further_models_differ_reproducibly_and_may_share_the_encoder(tiny_data, tmp_path):
    context, first = make_context(tiny_data, tmp_path / "run")
    store = context.open_store()
    begun = store.get_state(first)
    own, again = (store.get_state(further_model(context, first, 1, False)) for _ in range(2))
    other = store.get_state(further_model(context, first, 2, False))
    weight = "readout.weight"
    assert all(torch.equal(own[name], again[name]) for name in own) and own.keys() == begun.keys()
    assert not torch.equal(own[weight], begun[weight]) and not torch.equal(own[weight], other[weight])
    shared = store.get_state(further_model(context, first, 1, True))
    assert all(torch.equal(shared[n], begun[n]) for n in shared if n.startswith("backbone."))
    assert torch.equal(shared[weight], own[weight])
    mixed = store.get_state(with_shared_parts(context, further_model(context, first, 2, False), first))
    assert all(torch.equal(mixed[n], begun[n] if n.startswith("backbone.") else other[n]) for n in mixed)
