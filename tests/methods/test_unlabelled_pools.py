"""Rounds over unlabelled pools: stream chunks, hidden labels that are counted, fully supervised references."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from flows.methods import fedavg
from flows.run.inputs import participants
from tasks.client.local_data import local_data
from tasks.client.payload import Payload
from tasks.client.work import LocalWork, ObjectiveSpec
from tasks.data.clients import load_clients
from tests.support.rounds import make_context, make_federation, partitioned, run_rounds

STREAM = {"where": "clients", "per_class": 1, "streaming": 3, "rounds_per_chunk": 1}
LENET = {"name": "lenet5"}  # it has no BatchNorm, so that a batch may be one image


@pytest.fixture
def streamed(tiny_data, tmp_path):
    return partitioned(tiny_data.dataset, tmp_path / "clients", scheme="iid", labelled=STREAM)


def pools(context, data):
    return {client: local_data(context, client).count("unlabelled") for client in data.ids}


@pytest.mark.slow
def test_each_round_trains_on_its_chunk_and_reports_the_whole_pool(streamed, tmp_path):
    context, start = make_context(streamed, tmp_path / "run", train={"lr": 0.01, "batch_size": 2}, network=LENET)
    sizes = pools(context, streamed)
    objective = ObjectiveSpec("tests.methods.examples.pseudo_label_loss", {"confidence": 0.5})
    work = LocalWork(objective=objective, data="unlabelled")
    for number in (1, 2, 3, 4):
        fed = make_federation(context, None, streamed.sizes, number=number, state=start, facts={"unlabelled": sizes})
        updates = fed.train(fed.sample(), Payload.of(start), work, stage=1, name="pseudo-labels")
        assert {u.client: u.samples for u in updates} == sizes and not fed.record.dropped
        for update in updates:
            in_use = local_data(context, update.client).in_round(number).unlabelled
            assert update.steps == max(len(in_use) // 2, 1)  # a last batch of one image joins the one before


@pytest.mark.slow
def test_a_fully_supervised_reference_sees_what_is_hidden_from_the_others(streamed, tmp_path, tiny_data):
    context, start = make_context(streamed, tmp_path / "run", train={"lr": 0.01, "batch_size": 2}, network=LENET)
    sizes = pools(context, streamed)

    def train(**work):
        fed = make_federation(context, None, streamed.sizes, number=2, state=start, facts={"unlabelled": sizes})
        return fed.train(fed.sample(), Payload.of(start), LocalWork(**work), stage=1, name="training")

    few, everything = train(), train(data="both", reveal=True)
    for update, shown in zip(few, everything, strict=True):
        data = local_data(context, update.client)
        assert (update.samples, shown.samples) == (len(data.images), len(data.images) + sizes[update.client])
        seen = len(data.images) + len(data.in_round(2).unlabelled)
        labels = len(streamed.classes)
        assert (
            shown.sums["classification"][1] == pytest.approx(seen * labels) or shown.sums["classification"][1] == seen
        )
        assert not torch.equal(*(context.open_store().get_state(u.model)["readout.bias"] for u in (update, shown)))


@pytest.mark.slow
def test_supervised_training_does_not_depend_on_how_the_unlabelled_images_stream(tiny_data, tmp_path):
    digests = []
    for name, labelled in (("one", {"where": "clients", "per_class": 1}), ("three", STREAM)):
        data = partitioned(tiny_data.dataset, tmp_path / name, scheme="iid", labelled=labelled)
        context, start = make_context(data, tmp_path / f"run-{name}", train={"lr": 0.01})
        digests.append(run_rounds(2, "fedavg", context, start, data.sizes)[-1].record.model.digest)
    assert digests[0] == digests[1]


def test_clients_without_the_images_of_a_method_take_no_part(tiny_data, tmp_path, monkeypatch):
    data = partitioned(tiny_data.dataset, tmp_path / "c", scheme="iid", labelled={"where": "clients", "per_class": 50})
    settings = SimpleNamespace(
        method=SimpleNamespace(name="fedavg"), evaluation=SimpleNamespace(new_clients=0.0), seed=1
    )
    clients = load_clients(data.clients)
    assert participants(settings, clients) == clients.ids
    rows = clients.all_rows[clients.ids[1]]
    hidden = replace(rows, pool=np.where(rows.split == "train", "unlabelled", rows.pool))
    clients = replace(clients, all_rows=clients.all_rows | {clients.ids[1]: hidden})
    assert participants(settings, clients) == [client for client in clients.ids if client != clients.ids[1]]
    for kind, expected in (("unlabelled", [clients.ids[1]]), ("both", clients.ids)):
        monkeypatch.setattr(fedavg, "DATA", kind, raising=False)
        assert participants(settings, clients) == expected
