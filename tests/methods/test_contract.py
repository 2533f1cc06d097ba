"""What every method keeps to, whatever its algorithm. A method that is added to `METHODS` gets an entry in
`tests/support/contracts.py`.

Each contract trains for real: three clients with 14 or 15 images in two batches each, so that all clients make equally
many steps, but do not weigh alike.
"""

import dataclasses
import functools

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from flows.engine.engines import LocalEngine
from flows.methods import METHODS, load_method
from flows.rounds import one_round
from tasks.client.local_data import client_data
from tasks.client.payload import Sent
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.finished_rounds import finished_rounds, prune
from tasks.core.network import build_network
from tasks.core.randomness import numpy_generator
from tasks.core.records import ModelRef, read_round
from tasks.core.round_state import RoundState
from tests.support.contracts import CONTRACTS
from tests.support.rounds import make_context, make_federation, partitioned, run_rounds

pytestmark = pytest.mark.slow

NAMES = pytest.mark.parametrize("name", sorted(CONTRACTS.keys() & METHODS.keys()))


def test_every_method_has_its_entry():
    missing = sorted(METHODS.keys() - CONTRACTS.keys())
    assert not missing, (
        f"no contract for {', '.join(missing)}: add an entry to CONTRACTS in tests/support/contracts.py, with the "
        "settings that make the method FedAvg and those under which it does what it is for"
    )
    assert CONTRACTS.keys() <= METHODS.keys(), "a contract for a method that is not registered"


@pytest.fixture(scope="module")
def three_clients(tiny_data, tmp_path_factory):
    """The tiny data in three clients of unequal size."""
    data = partitioned(tiny_data.dataset, tmp_path_factory.mktemp("three") / "clients", scheme="iid", clients=3)
    assert sorted(data.sizes.values()) == [14, 15, 15]
    return data


@pytest.fixture
def play(three_clients, tmp_path):
    """``play(name, rounds, own, ...)``: the rounds of a method in a fresh store."""

    def run(name, rounds, own, *, clients=None, engine=None, **federation):
        context, start = context_of(name, three_clients, tmp_path / "run")
        clients = three_clients.sizes if clients is None else clients
        options = {"own": own, "engine": engine, **CONTRACTS[name].federation, **federation}
        return run_rounds(rounds, name, context, start, clients, **options)

    return run


def context_of(name, data, store, **changes):
    contract = CONTRACTS[name]
    options = {"objective": contract.objective, "train": contract.train, "network": contract.network}
    return make_context(data, store, **options, **changes)


@pytest.fixture(scope="module")
def undisturbed(three_clients, tmp_path_factory):
    """``undisturbed(name)``: a method's rounds with its active settings, in one thread, one client to a task."""

    @functools.cache
    def rounds(name):
        contract = CONTRACTS[name]
        context, start = context_of(name, three_clients, tmp_path_factory.mktemp(name))
        options = {"own": contract.active, **contract.federation}
        return run_rounds(contract.rounds, name, context, start, three_clients.sizes, **options)

    return rounds


@pytest.fixture(scope="module")
def fedavg(three_clients, tmp_path_factory):
    """``fedavg(name)``: as many rounds of FedAvg with all that a method's entry sets beside the method."""
    done = {}

    def rounds(name):
        contract = CONTRACTS[name]
        key = str((contract.objective, contract.network, contract.train, contract.federation))
        if len(done.get(key, ())) < contract.rounds:
            context, start = context_of(name, three_clients, tmp_path_factory.mktemp("fedavg"))
            done[key] = run_rounds(
                contract.rounds, "fedavg", context, start, three_clients.sizes, **contract.federation
            )
        return done[key][: contract.rounds]

    return rounds


def kept(record):
    """What a round hands to the next one: digests of the models, of the server's tensors and of the clients'."""
    state = record.state
    parts = (state.models, state.server, state.private, state.personal)
    return [{name: ref.digest for name, ref in part.items()} for part in parts], state.own, state.cluster_of


def digests(rounds):
    return [kept(fed.record) for fed in rounds]


def tensors_of(fed, ref, without=()):
    state = fed.context.open_store().get_state(ref)
    return {name: value for name, value in state.items() if name not in without}


@NAMES
def test_the_neutral_setting_is_fedavg_bit_for_bit(name, play, fedavg):
    contract = CONTRACTS[name]
    if contract.neutral is None:
        pytest.skip("no setting makes it FedAvg")
    rounds = play(name, contract.neutral_rounds, contract.neutral)
    for mine, plain in zip(rounds, fedavg(name)[: contract.neutral_rounds], strict=True):
        assert mine.record.participants == plain.record.participants
        assert mine.record.weights == plain.record.weights
        assert bool(mine.record.state.at_clients) == contract.neutral_keeps
        own, theirs = (tensors_of(fed, fed.record.model, contract.not_averaged) for fed in (mine, plain))
        assert own.keys() == theirs.keys()
        assert [key for key in own if not torch.equal(own[key], theirs[key])] == []


@NAMES
def test_the_active_setting_is_not_fedavg(name, undisturbed, fedavg):
    """Else the other contracts would hold for FedAvg and say nothing of the method."""
    ours, plain = undisturbed(name)[-1].record, fedavg(name)[-1].record
    # With equally many steps FedNova has nothing to normalise: tests/methods/test_fednova.py has unequal ones.
    same = name in ("fedavg", "fednova") or CONTRACTS[name].global_is_fedavg
    assert (ours.model.digest == plain.model.digest) == same
    if CONTRACTS[name].global_is_fedavg:
        own = {ours.state.own_model(client)[0].digest for client in ours.participants}
        assert len(own | {plain.model.digest}) == len(ours.participants) + 1


@NAMES
def test_the_order_of_clients_changes_nothing(name, play, undisturbed, three_clients):
    contract, back = CONTRACTS[name], dict(reversed(three_clients.sizes.items()))
    assert digests(play(name, contract.rounds, contract.active, clients=back)) == digests(undisturbed(name))


@NAMES
def test_workers_and_chunks_change_nothing(name, play, undisturbed):
    contract, execution = CONTRACTS[name], {"engine": LocalEngine(3), "workers": 3, "clients_per_task": 2}
    assert digests(play(name, contract.rounds, contract.active, **execution)) == digests(undisturbed(name))


@NAMES
def test_a_run_that_is_resumed_before_every_round_ends_the_same(name, three_clients, tmp_path, undisturbed):
    """Rounds are finished on disk as `federate` finishes them; the next one knows what is read from there alone."""
    contract, module = CONTRACTS[name], load_method(name)
    context, start = context_of(name, three_clients, tmp_path / "run", evaluation=EvaluationSettings(every=100))
    for number in range(1, contract.rounds + 1):
        state = RoundState.starting_from(start)
        if number > 1:
            state = finished_rounds(context.open_store(), number)[-1].state
        own, held = module.Settings(**contract.active), {"number": number, "state": state}
        fed = make_federation(context, own, three_clients.sizes, **held, **contract.federation)
        prune(context.open_store(), one_round(fed, module.run_round, tmp_path / "run", contract.evaluated_round))
    records = finished_rounds(context.open_store(), contract.rounds)
    expected = [fed.record for fed in undisturbed(name)]
    assert [record.model.digest for record in records] == [record.model.digest for record in expected]
    assert [record.participants for record in records] == [record.participants for record in expected]
    assert kept(records[-1]) == kept(expected[-1])
    for namespace, ref in records[-1].state.server.items():
        assert ref.uri == f"rounds/{contract.rounds:04d}/server-{namespace}.safetensors"


def trained_plainly(context, start, client, rounds):
    """The same epochs without any federation: a fresh optimiser each time, the client's batches in its own order."""
    model = build_network(context, context.open_store(), start)
    images, targets = client_data(context, client)
    images, how = torch.from_numpy(images[:].copy()).float() / 255, context.train
    for number in range(1, rounds + 1):
        model.train()
        adam, sgd = torch.optim.Adam, torch.optim.SGD
        parameters = list(model.parameters())
        optimiser = adam(parameters, how.lr) if how.optimizer == "adam" else sgd(parameters, how.lr, how.momentum)
        order = numpy_generator(context.seed, "batch order", number, 1, client).permutation(len(images))
        for rows in (order[:8], order[8:]):
            optimiser.zero_grad()
            loss = binary_cross_entropy_with_logits(model(images[rows]), torch.from_numpy(targets[rows]).float())
            loss.backward()
            if how.grad_clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, how.grad_clip)
            optimiser.step()
    return model.state_dict()


@NAMES
def test_one_client_in_the_neutral_setting_is_plain_training(name, play, three_clients, tmp_path):
    contract = CONTRACTS[name]
    if not contract.one_client or contract.objective != "bce" or contract.neutral is None:
        pytest.skip("it does not run with one client, is never FedAvg, or its loss is not the one written out here")
    client = three_clients.ids[0]
    rounds = play(name, contract.neutral_rounds, contract.neutral, clients={client: three_clients.sizes[client]})
    context, start = context_of(name, three_clients, tmp_path / "plain")
    plain = trained_plainly(context, start, client, contract.neutral_rounds)
    own = tensors_of(rounds[-1], rounds[-1].record.model, contract.not_averaged)
    assert own.keys() == plain.keys() - set(contract.not_averaged)
    assert [name for name in own if not torch.equal(own[name], plain[name])] == []


class OneFails(LocalEngine):
    """Trains in this process; one client is sent a model that cannot be read, which no second try would change."""

    def __init__(self, client):
        super().__init__(1)
        self.client = client

    def map(self, task, calls, timeout_s=None, done=None):
        assert task == "train-clients"
        damaged = [(title, (context, self.without_model(jobs), slots)) for title, (context, jobs, slots) in calls]
        return super().map(task, damaged, timeout_s, done)

    def without_model(self, jobs):
        gone = Sent(ModelRef("gone.safetensors", "0" * 64, 1), "start")
        return [
            dataclasses.replace(job, payload=dataclasses.replace(job.payload, start=gone))
            if job.client == self.client
            else job
            for job in jobs
        ]


@NAMES
def test_a_client_that_fails_is_dropped_and_the_round_goes_on(name, play, undisturbed):
    contract, first = CONTRACTS[name], undisturbed(name)[0]
    failing = first.record.participants[-1]
    (fed,) = play(name, 1, contract.active, engine=OneFails(failing))
    record, answered = fed.record, [c for c in first.record.participants if c != failing]
    assert record.participants == first.record.participants
    assert {dropped.client for dropped in record.dropped} == {failing}
    assert all(failing not in {u.client for u in updates} for updates in record.updates.values())
    assert sorted(record.weights) == (answered if contract.aggregates else [])
    assert failing not in record.state.private
    assert (failing in record.state.personalised) == contract.clustered
    assert all(value.isfinite().all() for value in tensors_of(fed, record.model).values())
    assert (record.model.digest != first.record.model.digest) == contract.aggregates


@NAMES
def test_the_record_of_a_round_is_complete(name, undisturbed):
    for number, fed in enumerate(undisturbed(name), 1):
        record, size = fed.record, fed.record.model.bytes
        assert record.round == number and record.dropped == []
        assert sorted(record.weights) == (record.participants if CONTRACTS[name].aggregates else [])
        assert not record.weights or sum(record.weights.values()) == pytest.approx(1)
        assert all(weight >= 0 for weight in record.weights.values())
        answers = [update for updates in record.updates.values() for update in updates]
        assert {update.client for update in answers} == set(record.participants)
        assert all(update.samples == fed.clients[update.client] and update.steps == 2 for update in answers)
        trainings = [log for log in record.stages if log.bytes_up]
        sending = [updates for updates in record.updates.values() if any(update.bytes_up for update in updates)]
        # Models may stay at the clients (LocalWork.stays).
        assert len(trainings) >= len(sending) >= CONTRACTS[name].aggregates
        for log in trainings:
            everything = log.clients * size
            assert log.bytes_up == everything if CONTRACTS[name].sends_all else 0 < log.bytes_up < everything, log.name
            assert log.bytes_down_naive >= log.bytes_down >= 0, log.name
        # Everybody who trains has been sent the global model at least once.
        everybody = len(record.participants) * size if CONTRACTS[name].aggregates or number == 1 else 0
        assert sum(log.bytes_down for log in record.stages) >= everybody
        held = [*record.state.models.values(), *record.state.server.values(), *record.state.at_clients]
        assert all(fed.context.open_store().holds(ref) for ref in held)
        assert read_round(record.as_dict(), number) == record
