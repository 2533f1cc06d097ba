"""FedRep: the head first, then the representation, against both written out; what travels; who is left out."""

import pytest
import torch

from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.own_models import own_tensors
from tests.support.plain_training import differing, train_plainly
from tests.support.rounds import make_context, run_round, run_rounds

HEAD = ("readout.",)


@pytest.fixture
def run(tiny_data, tmp_path):
    return make_context(tiny_data, tmp_path / "run", train={"lr": 0.01})


def tensors(context, ref):
    return context.open_store().get_state(ref)


@pytest.mark.slow
def test_two_rounds_are_those_of_the_paper_written_out(run, tiny_data):
    """Head epochs on the received representation, representation epochs on the new head, then the mean."""
    context, start = run
    rounds = run_rounds(2, "fedrep", context, start, tiny_data.sizes)
    shared = tensors(context, start)
    heads = {c: {n: v for n, v in shared.items() if n.startswith(HEAD)} for c in tiny_data.ids}
    body = tuple(name for name in shared if not name.startswith(HEAD))
    for number, fed in enumerate(rounds, 1):
        sent = {}
        for client in tiny_data.ids:
            trained = train_plainly(context, shared | heads[client], client, number, 1, trainable=HEAD)
            heads[client] = {name: trained[name] for name in heads[client]}
            after = train_plainly(context, shared | heads[client], client, number, 2, trainable=body)
            sent[client] = {name: after[name] for name in body}
            kept = tensors(context, fed.record.state.private[client])
            assert differing(kept, {f"model/{name}": value for name, value in heads[client].items()}) == []
        for update in fed.record.updates[2]:
            assert differing(tensors(context, update.model), sent[update.client]) == []
        shared = tensors(context, fed.record.model)
        for name in body:
            if shared[name].is_floating_point():
                mean = sum(fed.record.weights[c] * sent[c][name].double() for c in tiny_data.ids)
                assert torch.equal(shared[name], mean.to(shared[name].dtype)), name
        own = own_tensors(context.open_store(), fed.record.state, tiny_data.ids[0])
        assert differing(own, shared | heads[tiny_data.ids[0]]) == []


@pytest.mark.slow
def test_the_model_travels_down_once_and_only_the_representation_travels_up(run, tiny_data):
    context, start = run
    fed = run_round("fedrep", context, start, tiny_data.sizes)
    head = sum(v.numel() * v.element_size() for n, v in tensors(context, start).items() if n.startswith(HEAD))
    clients = len(tiny_data.ids)
    cost = {log.name: (log.bytes_down, log.bytes_up) for log in fed.record.stages if log.name != "weighted average"}
    assert cost == {
        "head": (clients * start.bytes, 0),
        "representation": (0, clients * (start.bytes - head)),
    }


@pytest.mark.slow
def test_both_parts_train_as_long_as_they_are_told(run, tiny_data):
    context, start = run
    fed = run_round("fedrep", context, start, tiny_data.sizes, own={"head_epochs": 3, "body_epochs": 2})
    assert {u.steps for u in fed.record.updates[1]} == {6} and {u.steps for u in fed.record.updates[2]} == {4}
    alone = run_round("fedrep", context, start, tiny_data.sizes, own={"personal": [], "body_epochs": 2})
    assert {u.steps for u in alone.record.updates[1]} == {4} and alone.record.state.personalised == []


def test_a_frozen_backbone_is_refused_as_nothing_shared_would_train():
    with pytest.raises(UserError, match="fedrep trains the representation apart from the head"):
        load_settings(None, ["tiny"], ["method.name=fedrep", "train.freeze=backbone", "model.name=resnet18"])
    load_settings(None, ["tiny"], ["method.name=fedper", "train.freeze=backbone", "model.name=resnet18"])
