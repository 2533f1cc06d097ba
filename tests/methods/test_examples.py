"""Methods of the coming families, written in a folder of their own: no shared file knows them.

A personalised method with layer-wise mixing, one with a bias per site, one with server momentum, and a semi-supervised
one.
"""

import math

import pytest
import torch

from flows.federation.evaluation import evaluate_round
from flows.methods import METHODS, load_method
from flows.rounds import one_round
from tasks.client.local_data import SERVER, local_data
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.finished_rounds import finished_rounds, prune
from tasks.core.own_models import own_tensors
from tasks.core.round_state import RoundState, client_model
from tests.support.rounds import make_context, make_federation, partitioned, run_round, run_rounds

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """The four methods by their names."""
    for name in ("layerwise", "site_bias", "server_momentum", "pseudo_labels"):
        monkeypatch.setitem(METHODS, name, f"tests.methods.examples.{name}")


@pytest.fixture
def three(tiny_data, tmp_path):
    """Three clients with local test sets, and a run on them."""
    data = partitioned(
        tiny_data.dataset, tmp_path / "clients", scheme="iid", clients=3, local={"scheme": "local", "test": 0.25}
    )
    return data, *make_context(data, tmp_path / "run", evaluation=EvaluationSettings(every=1))


def tensors(fed, ref):
    return fed.context.open_store().get_state(ref)


def test_own_models_alone_are_local_training(three):
    data, context, start = three
    fed = run_round("layerwise", context, start, data.sizes, own={"share": 0.0})
    for update in fed.record.updates[1]:
        trained, own = tensors(fed, update.model), tensors(fed, fed.state.models[client_model(update.client)])
        assert [name for name in trained if not torch.equal(trained[name], own[name])] == []


def test_layers_are_mixed_by_their_own_weights(three):
    data, context, start = three
    fed = run_round("layerwise", context, start, data.sizes, own={"share": 0.5})
    trained = {u.client: tensors(fed, u.model) for u in fed.record.updates[1]}
    first, *others = sorted(trained)
    own = tensors(fed, fed.state.models[client_model(first)])
    for name, value in own.items():
        if not value.is_floating_point():
            continue
        mine = trained[first][name].double()
        expected = 0.5 * mine + sum(0.25 * trained[c][name].double() for c in others)
        expected = expected if name.startswith("backbone.") else mine
        assert torch.allclose(value.double(), expected, atol=1e-6), name
    assert len({fed.state.own_model(client)[0].digest for client in trained}) == 3


def test_own_models_are_evaluated_saved_and_resumed(three, tmp_path):
    data, context, start = three
    module, records = load_method("layerwise"), []
    for number in (1, 2):
        state = records[-1].state if records else RoundState.starting_from(start)
        fed = make_federation(context, module.Settings(), data.sizes, number=number, state=state)
        record = one_round(fed, module.run_round, tmp_path / "run", 2)
        prune(context.open_store(), record)
        records = finished_rounds(context.open_store(), 2)
        assert records[-1] == record
    undisturbed = run_rounds(2, "layerwise", *make_context(data, tmp_path / "other"), data.sizes)[-1].state
    last = records[-1].state
    assert {n: r.digest for n, r in last.models.items()} == {n: r.digest for n, r in undisturbed.models.items()}
    assert all("local/macro_ap" in row and "global/macro_ap" in row for row in records[-1].per_client.values())
    assert math.isfinite(records[-1].metrics["macro_ap"]) and len(records[-1].per_client) == 3
    folder = tmp_path / "run" / "clients"
    assert sorted(len(list(path.glob("model-*"))) for path in folder.iterdir()) == [1, 1, 1]  # the last round's


def test_a_bias_per_site_is_kept_evaluated_and_exported(three):
    data, context, start = three
    first, second = run_rounds(2, "site_bias", context, start, data.sizes)
    plain = run_round("fedavg", context, start, data.sizes)
    ours, theirs = tensors(first, first.record.model), tensors(plain, plain.record.model)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == ["readout.bias"]
    assert torch.equal(ours["readout.bias"], tensors(first, start)["readout.bias"])
    assert all("readout.bias" not in tensors(first, update.model) for update in first.record.updates[1])
    store, state = context.open_store(), second.record.state
    exported = [own_tensors(store, state, client) for client in data.ids]
    shared, kept = tensors(second, state.global_model), [tensors(second, state.private[client]) for client in data.ids]
    for own, bias in zip(exported, kept, strict=True):
        assert torch.equal(own["readout.bias"], bias["model/readout.bias"])
        assert all(torch.equal(own[name], value) for name, value in shared.items() if name != "readout.bias")
    assert len({tuple(own["readout.bias"].tolist()) for own in exported}) == 3
    evaluate_round(second.engine, context, second.settings, second.record, data.sizes)
    assert all(math.isfinite(row["global/macro_ap"]) for row in second.record.per_client.values())
    assert sorted(second.record.per_client) == sorted(data.ids)


def test_what_is_kept_and_never_declared_is_noted(three, tmp_path):
    data, context, start = three
    module = load_method("site_bias")

    def silent(fed, state):
        done = module.run_round(fed, state)
        done.own.clear()
        return done

    fed = make_federation(context, module.Settings(), data.sizes, state=start)
    (note,) = one_round(fed, silent, tmp_path / "run").notes
    assert note.startswith(f"{', '.join(data.ids)} kept readout.bias, which is neither evaluated nor exported")
    fed = make_federation(context, module.Settings(), data.sizes, number=2, state=start)
    assert one_round(fed, module.run_round, tmp_path / "run").notes == []


def test_without_momentum_the_server_averages(three):
    data, context, start = three
    plain = run_rounds(2, "fedavg", context, start, data.sizes)[-1].record.model.digest
    still = run_rounds(2, "server_momentum", context, start, data.sizes, own={"momentum": 0.0})[-1]
    moving = run_rounds(2, "server_momentum", context, start, data.sizes)
    assert still.record.model.digest == plain != moving[-1].record.model.digest
    assert [list(fed.state.server) for fed in moving] == [["fedavgm"], ["fedavgm"]]


@pytest.fixture
def unlabelled(tiny_data, tmp_path):
    """Labels at the server; the clients have images without labels."""
    return partitioned(
        tiny_data.dataset, tmp_path / "clients", scheme="iid", clients=3, labelled={"where": "server", "per_class": 1}
    )


def test_labels_at_the_server_and_pseudo_labels_at_the_clients(unlabelled, tmp_path):
    context, start = make_context(unlabelled, tmp_path / "run", train={"lr": 0.01})
    counts = {client: len(local_data(context, client).unlabelled) for client in unlabelled.ids}
    server = len(local_data(context, SERVER).images)
    assert set(unlabelled.sizes.values()) == {0} and min(counts.values()) > 0 and server > 0
    facts = {"unlabelled": counts, "server_images": server}
    fed, again = (
        run_round("pseudo_labels", context, start, unlabelled.sizes, facts=facts, own={"confidence": 0.5})
        for _ in range(2)
    )
    (taught,), learned = fed.record.updates[1], fed.record.updates[2]
    assert (taught.client, taught.samples) == (SERVER, server)
    assert {u.client: u.samples for u in learned} == counts and not fed.record.dropped
    assert all(u.mean("sure") == 1.0 for u in learned)  # at 0.5 every prediction counts
    assert fed.record.model.digest == again.record.model.digest not in (start.digest, taught.model.digest)
    assert fed.record.participants == list(unlabelled.ids)


def test_a_supervised_method_drops_clients_without_labels(unlabelled, tmp_path):
    context, start = make_context(unlabelled, tmp_path / "run")
    with pytest.raises(Exception, match="has no labelled images to train on"):
        run_round("fedavg", context, start, unlabelled.sizes)
