"""The protocols on real models: which clients, which images, which model; chunks and the whole give the same."""

import dataclasses

import numpy as np
import pytest
from pydantic import ValidationError

from flows.engine.engines import LocalEngine
from flows.federation.evaluation import evaluate_round
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.federation_settings import FederationSettings
from tasks.core.network import build_network, predict_logits
from tasks.core.records import RoundRecord
from tasks.core.round_state import RoundState
from tasks.data.clients import load_clients
from tasks.data.dataset import load_dataset
from tasks.data.partition import PartitionSettings, partition
from tasks.evaluation.evaluate import evaluate_clients, evaluate_model, evaluate_shared
from tasks.evaluation.metric_sets import metric_set
from tasks.evaluation.protocols import chunks, clients_to_evaluate, new_clients

NARROW = {"objective": "bce", "network": {"name": "resnet18", "backbone": {"width": 0.125}}}


@pytest.fixture
def make_case(make_run, tiny_data, tmp_path):
    """``make_case(protocols, new_clients=0, **partition) -> (context, start, dataset, clients)``."""

    def make(*protocols, new_clients=0.0, **more):
        settings = PartitionSettings(**{"scheme": "iid", "clients": 4, "min_size": 2} | more)
        partition(tiny_data.dataset, settings, tmp_path / "clients", seed=1)
        evaluation = EvaluationSettings(protocols=list(protocols), new_clients=new_clients)
        context, start = make_run(**NARROW, clients=str(tmp_path / "clients"), evaluation=evaluation)
        return context, start, load_dataset(tiny_data.dataset), load_clients(tmp_path / "clients")

    return make


def shifted(context, start, **biases):
    """Return a model per name with another bias."""
    store = context.open_store()
    base = store.get_state(start)
    return {
        name: store.put_state(f"{name}.safetensors", base | {"readout.bias": base["readout.bias"] + shift})
        for name, shift in biases.items()
    }


def loss_of(context, ref, dataset, rows):
    model = build_network(context, context.open_store(), ref)
    return context.problem.loss(predict_logits(context, model, dataset.images[rows]), dataset.targets[rows])


def test_matched_images_are_drawn_once_and_evaluated_by_the_shared_model(make_case):
    context, start, _, clients = make_case("matched")
    out = evaluate_model(context, RoundState.starting_from(start))
    metrics = {name.rpartition("/")[0] for name in out["metrics"]}
    assert metrics == {"matched/macro_ap", "matched/micro_f1", "matched/loss"}
    statistics = {"mean", "weighted_mean", "std", "p10", "worst_decile", "worst", "best", "count"}
    assert {name.rpartition("/")[2] for name in out["metrics"]} == statistics
    assert "per_class" not in out, "the protocol global is not asked for"
    again = evaluate_model(dataclasses.replace(context), RoundState.starting_from(start))
    assert again["per_client"] == out["per_client"], "the same images in every round"
    assert list(out["per_client"]) == clients.ids
    losses = {client: row["matched/loss"] for client, row in out["per_client"].items()}
    assert len(set(losses.values())) > 1, "each client has its own images"
    # Without the logits of the task before, a chunk computes them itself.
    alone = evaluate_clients(context, RoundState.starting_from(start), clients.ids)
    assert {client: result["row"]["matched/loss"] for client, result in alone.items()} == pytest.approx(losses)


def test_new_clients_are_evaluated_by_the_global_model_on_their_own_images_and_by_no_other_protocol(make_case):
    context, start, dataset, clients = make_case("global", "matched", "new_clients", new_clients=0.25)
    (held,) = new_clients(context, clients)
    out = evaluate_model(context, RoundState.starting_from(start))
    row = out["per_client"][held]
    assert {name.partition("/")[0] for name in row} == {"new_clients"}
    rows = clients.rows(held, "train", "labelled")  # the partition makes no local test set; nothing trained on these
    assert row["new_clients/loss"] == pytest.approx(loss_of(context, start, dataset, rows), rel=1e-4)
    assert row["new_clients/images"] == len(rows)
    others = [name for client, cells in out["per_client"].items() if client != held for name in cells]
    assert {name.partition("/")[0] for name in others} == {"matched"}
    assert out["metrics"]["new_clients/loss/count"] == 1
    trained = sum(cells["train_images"] for cells in out["per_site"].values())
    assert trained == sum(len(clients.indices[client]) for client in clients.ids if client != held)


def test_new_clients_have_their_local_test_images_if_there_are_some(make_case):
    local = {"scheme": "local", "test": 0.3}
    context, start, dataset, clients = make_case("new_clients", new_clients=0.25, local=local)
    (held,) = new_clients(context, clients)
    out = evaluate_model(context, RoundState.starting_from(start))
    assert list(out["per_client"]) == [held]
    rows = clients.rows(held, "test")
    assert out["per_client"][held]["new_clients/loss"] == pytest.approx(
        loss_of(context, start, dataset, rows), rel=1e-4
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_chunks_give_what_one_process_gives(make_case, workers):
    """Clients with a model of their own, with a cluster's, and with the shared one."""
    local = {"scheme": "local", "test": 0.3}
    context, start, dataset, clients = make_case("global", "local", "matched", local=local)
    a, b, c, d = clients.ids
    models = shifted(context, start, one=0.5, two=-0.5)
    state = RoundState(
        models={"global": start, f"client/{a}": models["one"], "cluster/0": models["two"]},
        own={a: f"client/{a}", b: "cluster/0", c: "cluster/0"},
    )
    record = RoundRecord(1, state)
    sizes = {client: len(clients.indices[client]) for client in clients.ids}
    evaluate_round(LocalEngine(workers), context, FederationSettings(workers=workers), record, sizes)
    whole = evaluate_model(context, state)
    assert (record.metrics, record.per_client) == (whole["metrics"], whole["per_client"])
    assert (record.per_class, record.per_site) == (whole["per_class"], whole["per_site"])
    test = dataset.indices("test")
    for client, ref in {a: models["one"], b: models["two"], d: start}.items():
        own = clients.rows(client, "test")
        row = record.per_client[client]
        assert row["local/loss"] == pytest.approx(loss_of(context, ref, dataset, own), rel=1e-4), client
        assert "matched/loss" in row
        if client != d:
            assert row["global/loss"] == pytest.approx(loss_of(context, ref, dataset, test), rel=1e-4), client
    assert "global/loss" not in record.per_client[d]
    losses = [record.per_client[client]["global/loss"] for client in (a, b, c)]
    weights = [sizes[client] for client in (a, b, c)]
    assert record.metrics["loss"] == pytest.approx(np.average(losses, weights=weights))


def test_clients_with_the_same_model_are_beside_each_other(make_case):
    context, start, dataset, clients = make_case("global")
    a, b, c, d = clients.ids
    own = {a: "cluster/1", b: "cluster/0", c: "cluster/1", d: "cluster/0"}
    state = RoundState(models={"cluster/0": start, "cluster/1": start}, own=own)
    assert clients_to_evaluate(context, state, dataset, clients) == [b, d, a, c]
    assert evaluate_shared(context, state) == {"clients": [b, d, a, c], "logits": None, "mixing": {}}


def test_without_local_test_images_the_default_protocols_evaluate_no_client(make_case):
    context, start, _, _ = make_case("global", "local")
    shared = evaluate_shared(context, RoundState.starting_from(start))
    assert shared["clients"] == [] and shared["logits"] is None
    assert "macro_ap" in shared["metrics"]


def test_chunks_are_about_four_for_each_worker():
    names = [f"c{k}" for k in range(50)]
    assert [len(part) for part in chunks(names, 2, 1)] == [7] * 7 + [1]
    assert [name for part in chunks(names, 2, 1) for name in part] == names
    assert [len(part) for part in chunks(names, 8, 20)] == [20, 20, 10]
    assert chunks([], 2, 1) == []


def test_the_share_of_new_clients_and_the_protocol_need_each_other():
    for settings in ({"new_clients": 0.2}, {"protocols": ["global", "new_clients"]}, {"protocols": ["local", "local"]}):
        with pytest.raises(ValidationError, match=r"new_clients|twice"):
            EvaluationSettings(**settings)
    with pytest.raises(ValidationError):
        EvaluationSettings(protocols=[])
    assert set(metric_set("single_label").distribution) <= {*metric_set("single_label").client}
