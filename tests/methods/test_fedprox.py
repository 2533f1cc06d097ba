"""Rounds of FedProx, MOON and FedHybrid: what is sent and averaged, and where they are FedAvg (acceptance test 12)."""

import pytest

from flows.federate import federate
from flows.methods import fedavg, fedhybrid, fedprox, moon
from flows.run.open import DataPaths
from flows.settings.files import load_settings
from tasks.client.regularisers import RegulariserSpec
from tasks.core.store import Store
from tests.flows.federation.test_federation import SIZES, START, P, Recorder, bytes_of, federation, ref

BY_SIZE = [0.1, 0.3, 0.2, 0.4]


class Hybrid(Recorder):
    """The recorder that also answers FedHybrid's server step."""

    def run(self, task, title, context, *args):
        if task == "fedhybrid-average":
            self.averages.append(args)
            return ref("hybrid", len(self.averages)), ref("duals", len(self.averages))
        return super().run(task, title, context, *args)


def played(method, settings, **more):
    fed = federation(engine := Hybrid(), settings, model="resnet18", **more)
    return fed, engine, method.run_round(fed, START)


def trained(clients):
    return [ref("trained", client, 1) for client in clients]


@pytest.mark.parametrize("settings", [fedprox.Settings(mu=0.3), fedhybrid.Settings(mu=0.3, version="prox")])
def test_fedprox_is_fedavg_with_a_term_and_sends_nothing_more(settings):
    method = fedprox if isinstance(settings, fedprox.Settings) else fedhybrid
    fed, engine, model = played(method, settings)
    term = RegulariserSpec("prox", {"mu": 0.3})
    assert [(j.client, j.start, j.references, j.regulariser) for j in engine.jobs] == [
        (c, START, (), term) for c in "abcd"
    ]
    assert engine.averages == [(trained("abcd"), BY_SIZE)]
    plain, _, average = played(fedavg, fedavg.Settings())
    assert model == average and fed.record.weights == plain.record.weights and fed.server_state is None
    assert bytes_of(fed, "bytes_down") == bytes_of(plain, "bytes_down") == {"local training": 4 * P}


@pytest.mark.parametrize(("mu", "references"), [(2.0, ((START, 1),)), (0.0, ())])
def test_moon_runs_the_global_model_beside_the_local_one(mu, references):
    fed, engine, _ = played(moon, moon.Settings(mu=mu))
    term = RegulariserSpec("moon", {"mu": mu, "temperature": 0.5})
    assert [(j.client, j.start, j.references, j.regulariser) for j in engine.jobs] == [
        (c, START, references, term) for c in "abcd"
    ]
    assert engine.averages == [(trained("abcd"), BY_SIZE)]
    assert bytes_of(fed, "bytes_down") == bytes_of(fed, "bytes_down_naive") == {"local training": 4 * P}


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_fedhybrid_counts_all_clients_and_keeps_the_mean_dual(weighting):
    settings = fedhybrid.Settings(mu=0.3, weighting=weighting)
    fed, engine, model = played(fedhybrid, settings, clients_per_round=2)
    ids = fed.record.participants
    scale = {c: 4 * SIZES[c] / 100 if weighting == "size" else 1.0 for c in ids}
    assert len(ids) == 2
    assert [(j.client, j.references, j.regulariser) for j in engine.jobs] == [
        (c, (), RegulariserSpec("dual", {"mu": 0.3, "scale": scale[c]})) for c in ids
    ]
    assert engine.averages == [(trained(ids), [SIZES[c] for c in ids], START, None, 0.3, 4)]
    assert (model, fed.server_state) == (ref("hybrid", 1), ref("duals", 1))
    assert fed.record.weights == dict.fromkeys(ids, 0.5)
    assert bytes_of(fed, "bytes_down") == bytes_of(fed, "bytes_up") == {"local training": 2 * P}
    fedhybrid.run_round(fed, model)
    assert engine.averages[1][2:4] == (ref("hybrid", 1), ref("duals", 1)) and fed.server_state == ref("duals", 2)


def test_a_client_that_does_not_answer_has_no_part_in_the_step():
    fed = federation(engine := Hybrid(silent="c"), fedhybrid.Settings(), model="resnet18")
    fedhybrid.run_round(fed, START)
    assert engine.averages[0][:2] == (trained("abd"), [10, 30, 40]) and engine.averages[0][-1] == 4
    assert fed.record.weights == pytest.approx(dict.fromkeys("abd", 1 / 3)) and "c" not in fed.record.client_states


@pytest.fixture(scope="module")
def run(tiny_data, tmp_path_factory):
    """``run("method.name=moon", ..., rounds=2)`` federates a narrow ResNet-18 on the tiny data: (summary, store)."""
    quick = ["model.name=resnet18", "tracking.enabled=false", "train.epochs=1", "train.batch_size=4"]

    def work(*overrides, rounds=2, run_id=None):
        settings = load_settings(None, ["tiny"], [*quick, f"federation.rounds={rounds}", *overrides])
        summary = federate(settings, DataPaths(tiny_data.dataset, tiny_data.clients), run_id=run_id)
        return summary, Store(summary.root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSCENE_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield work


@pytest.fixture(scope="module")
def plain(run):
    """Digests of FedAvg's global models."""
    return digests(run("method.name=fedavg")[0])


def digests(summary):
    return [record.model.digest for record in summary.records]


@pytest.mark.parametrize(
    "sets",
    [
        ["method.name=fedprox", "method.fedprox.mu=0"],
        ["method.name=moon", "method.moon.mu=0"],
        ["method.name=fedhybrid", "method.fedhybrid.version=prox", "method.fedhybrid.mu=0"],
    ],
    ids=lambda sets: sets[0],
)
def test_a12_without_weight_it_is_fedavg_bit_for_bit(run, plain, sets):
    summary, store = run(*sets)
    assert digests(summary) == plain and summary.digest == plain[-1]
    assert summary.records[-1].client_states == {} and not store.exists("clients")


def test_with_weight_it_is_not(run, plain):
    prox, _ = run("method.name=fedprox", "method.fedprox.mu=1")
    assert not set(digests(prox)) & set(plain)
    contrast, _ = run("method.name=moon")
    first, second = digests(contrast)
    assert first == plain[0] and second != plain[1]  # it begins with a client's second training
    assert len(contrast.records[-1].client_states) == 4


def test_fedhybrid_goes_on_where_it_stopped(run):
    sets = ["method.name=fedhybrid", "method.fedhybrid.mu=0.1", "federation.clients_per_round=2"]
    whole, store = run(*sets, rounds=3, run_id="whole")
    run(*sets, rounds=1, run_id="parts")
    parts, _ = run(*sets, rounds=3, run_id="parts")
    assert digests(parts) == digests(whole)
    last = whole.records[-1]
    assert parts.records[-1].server_state.digest == last.server_state.digest
    # The server's mean dual is that of the clients' own, of which those never drawn are 0
    kept = [store.get_state(ref) for ref in last.client_states.values()]
    for name, value in store.get_state(last.server_state).items():
        own = sum(state[f"dual/{name}"].double() for state in kept) / 4
        assert (own - value).abs().max() < 1e-6, name
