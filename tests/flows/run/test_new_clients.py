"""Held-out clients in a run: they never train, they are evaluated, and nothing may require them."""

import pytest

from flows.federate import federate
from flows.run.inputs import DataPaths
from flows.run.open import derive_run_id, open_run, read_context
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.data.clients import load_clients
from tasks.evaluation.protocols import new_clients
from tests.methods.test_combinations import NARROW

HELD = ("evaluation.protocols=[global, new_clients]", "evaluation.new_clients=0.25")


@pytest.fixture
def data(tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path / "runs"))
    return DataPaths(tiny_data.dataset, tiny_data.clients)


def settings_of(*more):
    return load_settings(None, ["tiny"], [*NARROW, "method.name=fedavg", "model.name=resnet18", *HELD, *more])


@pytest.mark.slow
def test_held_out_clients_never_train_and_are_evaluated(data):
    summary = federate(settings_of("federation.rounds=3"), data)
    clients = load_clients(data.clients)
    (held,) = new_clients(read_context(summary.root), clients)
    trained = {client for record in summary.records for client in record.participants}
    assert trained == set(clients.ids) - {held}
    for record in summary.records:
        assert list(record.per_client) == [held]
        assert record.metrics["new_clients/loss/count"] == 1
    assert summary.records[-1].per_client[held]["new_clients/images"] == len(clients.indices[held])


def test_participants_are_counted_without_them(data):
    every = load_clients(data.clients).ids
    with open_run(settings_of(), data) as run:
        held = new_clients(run.context, load_clients(data.clients))
        assert sorted(run.clients) == sorted(set(every) - set(held))
    with pytest.raises(UserError, match="only 3 clients"):
        derive_run_id(load_settings(None, ["tiny"], ["ingest.image_size=32", "method.fmman.clusters=4", *HELD]), data)


def test_a_required_client_that_is_held_out_is_refused(data):
    with open_run(settings_of(), data) as run:
        (held,) = new_clients(run.context, load_clients(data.clients))
    with pytest.raises(UserError, match=r"required clients never take part") as caught:
        derive_run_id(settings_of(f"federation.required=[{held}]"), data)
    assert held in str(caught.value)


def test_a_stop_by_validation_images_needs_the_protocol_global():
    with pytest.raises(UserError, match=r"federation\.stop looks at the validation images"):
        load_settings(None, ["tiny"], ["evaluation.protocols=[local]", "federation.stop.patience=2"])
    load_settings(None, ["tiny"], ["evaluation.protocols=[local]"])
