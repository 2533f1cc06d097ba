"""A federation of one client is plain training (acceptance test 12), held against a loop written out here."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from flows.engine.engines import make_engine
from flows.federation.federation import Federation
from flows.federation.progress import Quiet
from flows.methods import load_method
from tasks.client.train import client_data
from tasks.core.federation_settings import FederationSettings
from tasks.core.network import build_network
from tasks.core.randomness import numpy_generator
from tasks.core.store import state_digest

PLAIN = {"name": "resnet18", "backbone": {"width": 0.125}}
OFF = {"lambda_contrast": 0, "lambda_prox": 0, "w_rec": 0, "w_con": 0, "use_uncertainty": False}
STATELESS = {"name": "fmman", "backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2, "use_state": False}}


def rounds_of(context, start, client, method="fedavg", rounds=2, **settings):
    """The global model after some rounds in which ``client`` alone takes part."""
    module, model = load_method(method), start
    for number in range(1, rounds + 1):
        progress = Quiet()
        options = FederationSettings(engine="local"), module.Settings(**settings), {client: 11}
        fed = Federation(context, *options, make_engine("local", 1), number, {}, progress)
        model = module.run_round(fed, model)
    return model


def trained_plainly(context, start, client, rounds=2):
    """The same epochs without any federation: a fresh Adam each time, the client's batches in its own order."""
    store = context.open_store()
    model = build_network(context, store, start)
    images, targets = client_data(context, client)
    images = torch.from_numpy(images[:].copy()).float() / 255
    for number in range(1, rounds + 1):
        model.train()
        adam = torch.optim.Adam(model.parameters(), context.train.lr)
        order = numpy_generator(context.seed, "batch order", number, 1, client).permutation(len(images))
        for rows in (order[:8], order[8:]):
            adam.zero_grad()
            loss = binary_cross_entropy_with_logits(model(images[rows]), torch.from_numpy(targets[rows]).float())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            adam.step()
    return state_digest(model.state_dict())


def test_a12_one_client_is_plain_training(make_run, tiny_data):
    context, start = make_run("plain", objective="bce", network=PLAIN)
    client = tiny_data.ids[0]
    assert rounds_of(context, start, client).digest == trained_plainly(context, start, client)


def test_a12_fmman_without_its_terms_and_one_client_trains_once_a_stage(make_run, tiny_data):
    """With one client K is 1: stage 3 goes on from stage 1, so a cycle is two trainings and their average is itself."""
    context, start = make_run("fmman", objective="fmman", settings=OFF, network=STATELESS)
    client = tiny_data.ids[0]
    single = rounds_of(context, start, client, "fmman", rounds=1, clustering="none")
    average = rounds_of(context, start, client, "fedavg", rounds=1)
    assert single.digest == average.digest
    both = rounds_of(context, start, client, "fmman", rounds=1, clusters=1)
    assert both.digest != single.digest
