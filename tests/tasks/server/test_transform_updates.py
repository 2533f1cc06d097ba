"""The server's transforms of received updates."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from tasks.client.payload import Payload
from tasks.core.update_transforms import clip_norm
from tasks.server.transform_updates import transform_updates
from tests.support.updates import SCHEMA, make_context, put_start, put_update, random_state


@pytest.fixture
def context(tmp_path):
    given = vars(make_context(tmp_path)) | {"seed": 3, "server_transforms": (clip_norm.Settings(max_norm=0.5),)}
    return SimpleNamespace(**given)


def test_every_update_is_transformed_and_found_again(context):
    store, start = context.open_store(), put_start(context, random_state(9))
    updates = [put_update(context, client, random_state(seed)) for seed, client in enumerate("ab")]
    sent = dict.fromkeys("ab", Payload.of(start))
    out = transform_updates(context, updates, sent, 1, 1)
    parameters = [name for name, spec in SCHEMA.items() if spec.kind == "parameter"]
    for before, after in zip(updates, out, strict=True):
        assert dataclasses.replace(after, model=before.model) == before, "only the weights are others"
        state = store.get_state(after.model)
        assert clip_norm.change_norm(state, store.get_state(start), parameters) == pytest.approx(0.5, rel=1e-5)
        assert torch.equal(state["bn.running_mean"], store.get_state(before.model)["bn.running_mean"])
    files = len(store.names("updates"))
    assert transform_updates(context, updates, sent, 1, 1) == out and len(store.names("updates")) == files


def test_each_client_may_have_its_own_start(context):
    store = context.open_store()
    starts = {
        client: Payload.of(store.put_state(f"start-{client}.safetensors", random_state(seed)))
        for seed, client in enumerate("ab")
    }
    updates = [put_update(context, client, random_state(seed)) for seed, client in enumerate("ab")]
    out = transform_updates(context, updates, starts, 1, 1)
    assert [u.model.digest for u in out] == [u.model.digest for u in updates], "none has moved from its own start"


def test_what_the_server_made_for_a_client_is_part_of_its_start(context):
    store, begun = context.open_store(), put_start(context, random_state(9))
    own = store.put_state("own.safetensors", {"model/fc.weight": random_state(0)["fc.weight"]})
    update = put_update(context, "a", random_state(9) | {"fc.weight": random_state(0)["fc.weight"]})
    payload = Payload.of(begun).with_state(None, own)
    assert transform_updates(context, [update], {"a": payload}, 1, 1)[0].model.digest == update.model.digest
    assert transform_updates(context, [update], {"a": Payload.of(begun)}, 1, 1)[0].model.digest != update.model.digest
