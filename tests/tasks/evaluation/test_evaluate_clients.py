"""Local test sets and personal models, against direct computations."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from models.errors import UserError
from tasks.client.feature_skew import client_images
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.network import build_network
from tasks.core.round_state import RoundState
from tasks.data.clients import load_clients
from tasks.data.dataset import load_dataset
from tasks.data.partition import PartitionSettings, partition
from tasks.evaluation.client_summary import client_distribution, weighted_mean
from tasks.evaluation.evaluate import evaluate_model
from tasks.evaluation.metric_sets import metric_set

LOCAL = {"scheme": "local", "test": 0.3}
NARROW = {"objective": "bce", "network": {"name": "resnet18", "backbone": {"width": 0.125}}}


@pytest.fixture
def make_case(make_run, tiny_data, tmp_path):
    """``make_case(**partition) -> (context, start, dataset, clients)``."""

    def make(**more):
        settings = PartitionSettings(**{"scheme": "iid", "clients": 4, "min_size": 2} | more)
        partition(tiny_data.dataset, settings, tmp_path / "clients", seed=1)
        context, start = make_run(**NARROW, clients=str(tmp_path / "clients"))
        return context, start, load_dataset(tiny_data.dataset), load_clients(tmp_path / "clients")

    return make


def expected_metrics(model, images, targets):
    """Compute a model's metrics image by image with scikit-learn."""
    with torch.no_grad():
        logits = torch.cat([model.eval()(torch.from_numpy(image[None]) / 255) for image in np.asarray(images)]).double()
    scores, used = logits.sigmoid().numpy(), np.flatnonzero(targets.any(axis=0))
    predicted = (scores >= 0.5).astype(int)
    return {
        "macro_ap": np.mean([average_precision_score(targets[:, c], scores[:, c]) for c in used]),
        "micro_f1": f1_score(targets, predicted, average="micro", zero_division=0),
        "mean_f1": f1_score(targets[:, used], predicted[:, used], average="macro", zero_division=0),
        "loss": torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(targets).double()).item(),
        "images": len(targets),
        "classes_used": len(used),
    }


def select(row, expected, protocol=""):
    return {name: row[f"{protocol}{name}"] for name in expected}


@pytest.mark.parametrize("features", [None, {"kind": "transform", "strength": 1.0}])
def test_the_global_model_is_evaluated_on_the_local_test_sets(make_case, features):
    context, start, dataset, clients = make_case(local=LOCAL, **({"features": features} if features else {}))
    out = evaluate_model(context, RoundState.starting_from(start))
    model = build_network(context, context.open_store(), start)
    assert list(out["per_client"]) == clients.ids
    for client, row in out["per_client"].items():
        rows = clients.rows(client, "test")
        assert len(rows) > 0
        assert set(row) == {f"local/{name}" for name in metric_set("multi_label").client}
        expected = expected_metrics(model, client_images(dataset, clients, client, rows)[:], dataset.targets[rows])
        assert select(row, expected, "local/") == pytest.approx(expected, rel=1e-4), client
    values = [row["local/loss"] for row in out["per_client"].values()]
    assert out["metrics"]["local/loss/mean"] == pytest.approx(np.mean(values))
    assert out["metrics"]["local/loss/std"] == pytest.approx(np.std(values, ddof=1))
    assert out["metrics"]["local/loss/worst"] == out["metrics"]["local/loss/worst_decile"] == max(values)
    assert out["metrics"]["local/macro_ap/worst"] == min(row["local/macro_ap"] for row in out["per_client"].values())
    sizes = [len(clients.rows(client, "test")) for client in clients.ids]
    assert out["metrics"]["local/loss/weighted_mean"] == pytest.approx(np.average(values, weights=sizes))
    plain = out["metrics"]
    rows = dataset.indices("test")
    expected = expected_metrics(model, dataset.images[rows], dataset.targets[rows])
    assert select(plain, expected) == pytest.approx(expected, rel=1e-4), (
        "the metrics of the pooled test set are unchanged"
    )


def test_the_distribution_over_clients_by_hand():
    # 11 clients: the worst decile is two of them. AP 0, 0.1, ..., 1; one more has no positives and so no AP.
    rows = {
        f"c{k:02d}": {"local/macro_ap": k / 10, "local/micro_f1": 0.5, "local/loss": float(k), "local/images": 1.0 + k}
        for k in range(11)
    }
    rows["none"] = {"local/macro_ap": math.nan, "local/micro_f1": 0.0, "local/loss": 5.0, "local/images": 99.0}
    found = client_distribution(rows, ("macro_ap", "micro_f1", "loss"))
    assert found["local/macro_ap/mean"] == pytest.approx(0.5)
    # sum k (1 + k) / 10 over sum (1 + k), k = 0 .. 10: 44 / 66
    assert found["local/macro_ap/weighted_mean"] == pytest.approx(44 / 66), "a client without AP has no weight"
    assert found["local/macro_ap/std"] == pytest.approx(math.sqrt(0.11)), "divisor n - 1"
    assert found["local/macro_ap/p10"] == pytest.approx(0.1)
    assert found["local/macro_ap/worst_decile"] == pytest.approx(0.05), "the lowest"
    assert (found["local/macro_ap/worst"], found["local/macro_ap/best"]) == (0.0, 1.0)
    assert (found["local/macro_ap/count"], found["local/loss/count"]) == (11, 12)
    assert found["local/loss/worst_decile"] == pytest.approx(9.5), "the highest"
    assert (found["local/loss/worst"], found["local/loss/best"]) == (10.0, 0.0)
    # 12 losses 0 .. 10 and 5 once more: the 90th percentile is at position 9.9 of 0 .. 11
    assert found["local/loss/p10"] == pytest.approx(8.9)
    assert found["local/micro_f1/worst_decile"] == pytest.approx(0.25)
    assert len(found) == 3 * 8
    assert client_distribution({}, ("macro_ap",)) == {}
    nobody = client_distribution({"a": {"local/macro_ap": math.nan, "local/images": 2.0}}, ("macro_ap",))
    assert nobody["local/macro_ap/count"] == 0
    assert all(math.isnan(nobody[f"local/macro_ap/{key}"]) for key in ("mean", "weighted_mean", "std", "p10", "best"))


def test_a_weighted_mean_by_hand():
    rows = [{"a": 1.0, "b": math.nan, "images": 13.0}, {"a": 4.0, "b": math.nan, "images": 13.0}]
    found = weighted_mean(rows, [2, 1])
    assert found["a"] == 2.0
    assert math.isnan(found["b"])
    assert found["images"] == 13.0


def personal(context, start, clients, seed=0):
    """Return a state with tensors for the first two clients, a classifier and a bias, and the resulting models.

    The first client keeps tensors too: statistics, and a classifier that what the server made replaces.
    """
    store, base = context.open_store(), context.open_store().get_state(start)
    generator = torch.Generator().manual_seed(seed)
    state, models = RoundState.starting_from(start), {}
    for client, names in zip(clients.ids[:2], (("readout.weight", "readout.bias"), ("readout.bias",)), strict=True):
        own = {name: torch.randn(base[name].shape, generator=generator) for name in names}
        made = {f"model/{name}": value for name, value in own.items()} | {"moon/previous": torch.ones(3)}
        state.personal[client] = store.put_state(f"clients/{client}.safetensors", made)
        mean, kept = "backbone.bn1.running_mean", {}
        if client == clients.ids[0]:
            kept = {mean: base[mean] + 0.1, "readout.bias": base["readout.bias"] + 5}
            tensors = {f"model/{name}": value for name, value in kept.items()} | {"control/x": torch.ones(2)}
            state.private[client] = store.put_state(f"clients/{client}-kept.safetensors", tensors)
        models[client] = build_network(context, store, start)
        models[client].load_state_dict(base | kept | own)
    return state, models


@pytest.mark.slow
def test_personal_models_are_evaluated_on_the_pooled_images_and_averaged_by_size(make_case):
    context, start, dataset, clients = make_case(local=LOCAL)
    state, models = personal(context, start, clients)
    a, b = state.personal
    out = evaluate_model(context, state, {a: 30, b: 10, clients.ids[2]: 99})
    rows = dataset.indices("test")
    found = {c: expected_metrics(models[c], dataset.images[rows], dataset.targets[rows]) for c in (a, b)}
    expected = {name: 0.75 * found[a][name] + 0.25 * found[b][name] for name in found[a]}
    assert select(out["metrics"], expected) == pytest.approx(expected, rel=1e-4)
    assert out["metrics"]["images"] == len(rows), "exact"
    val = dataset.indices("val")
    aps = [expected_metrics(models[c], dataset.images[val], dataset.targets[val])["macro_ap"] for c in (a, b)]
    assert out["metrics"]["val_macro_ap"] == pytest.approx(0.75 * aps[0] + 0.25 * aps[1], rel=1e-4)
    for client in (a, b):
        row, own = out["per_client"][client], clients.rows(client, "test")
        assert row["global/macro_ap"] == pytest.approx(found[client]["macro_ap"], rel=1e-4)
        mine = expected_metrics(models[client], dataset.images[own], dataset.targets[own])
        assert select(row, mine, "local/") == pytest.approx(mine, rel=1e-4)
    # the others have the global model
    third, own = clients.ids[2], clients.rows(clients.ids[2], "test")
    mine = expected_metrics(
        build_network(context, context.open_store(), start), dataset.images[own], dataset.targets[own]
    )
    assert select(out["per_client"][third], mine, "local/") == pytest.approx(mine, rel=1e-4)
    assert "global/loss" not in out["per_client"][third]
    assert out["metrics"]["global/macro_ap/count"] == 2
    assert out["metrics"]["local/macro_ap/count"] == 4
    only = {c: dataclasses.replace(state, personal={c: state.personal[c]}) for c in (a, b)}
    alone = {c: evaluate_model(context, only[c]) for c in (a, b)}
    for table in ("per_class", "per_site"):
        for name, cells in out[table].items():
            for key, value in cells.items():
                one, two = (alone[c][table][name][key] for c in (a, b))
                assert value == pytest.approx(0.75 * one + 0.25 * two, nan_ok=True), (table, name, key)


def test_default_weights_are_numbers_of_training_images(make_case):
    context, start, _, clients = make_case(scheme="natural", clients=None)
    state, _ = personal(context, start, clients)
    sizes = {client: len(clients.indices[client]) for client in state.personal}
    assert len(set(sizes.values())) == 2
    out = evaluate_model(context, state)
    assert out == evaluate_model(context, state, sizes)
    assert out["per_client"].keys() == state.personal.keys(), "no local test sets, but personal models"
    assert all(name.startswith("global/") for row in out["per_client"].values() for name in row)


@pytest.mark.slow
def test_personal_states_equal_to_the_global_model_change_nothing(make_case):
    context, start, _, clients = make_case(local=LOCAL)
    store = context.open_store()
    same = store.put_state("same.safetensors", {f"model/{k}": v for k, v in store.get_state(start).items()})
    own = RoundState(models={"global": start}, personal=dict.fromkeys(clients.ids, same))
    out, plain = evaluate_model(context, own), evaluate_model(context, RoundState.starting_from(start))
    shared = {name: value for name, value in plain["metrics"].items() if not name.startswith("interval/")}
    assert select(out["metrics"], shared) == pytest.approx(shared)
    assert not [name for name in out["metrics"] if name.startswith("interval/")], "a mean of bounds is no bound"
    assert select(out["per_client"], plain["per_client"]).keys() == plain["per_client"].keys()
    for client, row in plain["per_client"].items():
        assert select(out["per_client"][client], row) == row


def test_personal_states_of_another_network_are_refused(make_case):
    context, start, _, clients = make_case()
    store = context.open_store()
    for number, tensors in enumerate(({"model/head.weight": torch.ones(2)}, {"model/readout.bias": torch.ones(99)})):
        ref = store.put_state(f"odd{number}.safetensors", tensors)
        with pytest.raises(UserError, match="do not fit"):
            evaluate_model(context, RoundState(models={"global": start}, personal={clients.ids[0]: ref}))


def test_a_clients_own_model_is_evaluated_in_place_of_the_global_one(make_case):
    """Without a global model too, if every client has one: its own, a cluster's, or one that a part replaces."""
    context, start, dataset, clients = make_case()
    store, base = context.open_store(), context.open_store().get_state(start)
    biased = [base | {"readout.bias": base["readout.bias"] + shift} for shift in (0.5, -0.5)]
    one, two = (store.put_state(f"own{k}.safetensors", state) for k, state in enumerate(biased))
    first, *others = clients.ids
    own = {first: "client/0"} | dict.fromkeys(others, "cluster/0")
    state = RoundState(models={"client/0": one, "cluster/0": two}, own=own)
    out, rows = evaluate_model(context, state), dataset.indices("test")
    for client, ref in {first: one, others[-1]: two}.items():
        found = expected_metrics(build_network(context, store, ref), dataset.images[rows], dataset.targets[rows])
        assert out["per_client"][client]["global/loss"] == pytest.approx(found["loss"], rel=1e-4)
    missing = RoundState(models={"client/0": one}, own={first: "client/0"})
    assert list(evaluate_model(context, missing)["per_client"]) == [first], "the others have no model yet"
    with pytest.raises(UserError, match="a client's model is not there"):
        evaluate_model(context, RoundState(models={"client/0": one}, own={first: "client/1"}))
    with pytest.raises(UserError, match="no global model"):
        evaluate_model(context, RoundState(models={"client/0": one}))


@pytest.mark.slow
def test_the_evaluation_settings_apply_to_every_table(make_case):
    context, start, dataset, _ = make_case(local=LOCAL)
    strict = dataclasses.replace(context, evaluation=EvaluationSettings(threshold=0.999, zero_support="zero"))
    state = RoundState.starting_from(start)
    out = evaluate_model(strict, state)
    assert out["metrics"]["micro_recall"] == out["metrics"]["cf1"] == 0
    assert {row["recall"] for row in out["per_class"].values()} == {0.0}
    assert {row["local/micro_f1"] for row in out["per_client"].values()} == {0.0}
    for row in out["per_site"].values():
        assert row["classes_used"] == len(dataset.classes)
    for row in out["per_client"].values():
        assert row["local/classes_used"] == len(dataset.classes)
    assert any(
        row["classes_used"] < len(dataset.classes) for row in evaluate_model(context, state)["per_site"].values()
    )


def test_means_are_weighted_and_clients_without_labelled_images_count_alike():
    rows = [{"a": 1.0}, {"a": 4.0}]
    assert weighted_mean(rows, [2, 1]) == {"a": 2.0}
    assert weighted_mean(rows, [0, 0]) == {"a": 2.5}
