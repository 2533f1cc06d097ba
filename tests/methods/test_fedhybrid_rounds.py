"""FedHybrid's round: what is sent, what the server's step is given, and duals of real training."""

import pytest

from flows.methods import fedhybrid
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.server.aggregation_job import Aggregated
from tests.support.recorder import SIZES, START, P, Recorder, bytes_of, federation, ref, trained
from tests.support.rounds import NARROW, run_rounds


class Hybrid(Recorder):
    """The recorder with FedHybrid's server step."""

    def aggregated(self, job):
        self.aggregations.append(job)
        count = len(self.aggregations)
        weights = dict.fromkeys([u.client for u in job.updates], 1 / len(job.updates))
        return Aggregated({"global": ref("hybrid", count)}, ref("duals", count), {"global": weights})


def played(settings, **more):
    fed = federation(engine := Hybrid(), settings, model="resnet18", **more)
    return fed, engine, fedhybrid.run_round(fed, fed.state)


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_the_step_counts_all_clients_and_the_mean_dual_is_handed_on(weighting):
    settings = fedhybrid.Settings(mu=0.3, weighting=weighting)
    fed, engine, state = played(settings, clients_per_round=2)
    ids = fed.record.participants
    scale = {c: 4 * SIZES[c] / 100 if weighting == "size" else 1.0 for c in ids}
    assert len(ids) == 2
    specs = {c: RegulariserSpec("dual", {"mu": 0.3, "scale": scale[c]}) for c in ids}
    assert [(j.client, j.payload, j.work) for j in engine.jobs] == [
        (c, Payload.of(START, references=()), LocalWork(regularisers=(specs[c],))) for c in ids
    ]
    (job,) = engine.aggregations
    assert [(u.client, u.model, u.samples) for u in job.updates] == list(
        zip(ids, trained(ids), [SIZES[c] for c in ids], strict=True)
    )
    assert job.spec == AggregatorSpec("tasks.server.fedhybrid", {"mu": 0.3})
    assert (job.start, job.state, job.facts) == (START, None, {"clients": 4})
    assert (state.global_model, state.server) == (ref("hybrid", 1), {"fedhybrid": ref("duals", 1)})
    assert fed.record.weights == dict.fromkeys(ids, 0.5)
    assert bytes_of(fed, "bytes_down") == bytes_of(fed, "bytes_up") == {"local training": 2 * P}
    after = fedhybrid.run_round(fed, state)
    assert (engine.aggregations[1].start, engine.aggregations[1].state) == (ref("hybrid", 1), ref("duals", 1))
    assert after.server == {"fedhybrid": ref("duals", 2)}


def test_a_client_without_an_update_is_left_out_of_the_server_step():
    fed = federation(engine := Hybrid(silent="c"), fedhybrid.Settings(), model="resnet18")
    state = fedhybrid.run_round(fed, fed.state)
    (job,) = engine.aggregations
    assert [u.model for u in job.updates] == trained("abd") and job.facts == {"clients": 4}
    assert fed.record.weights == pytest.approx(dict.fromkeys("abd", 1 / 3)) and sorted(state.private) == list("abd")


def test_the_servers_mean_dual_is_the_mean_of_the_clients_duals(make_run, tiny_data):
    """The duals of clients that never took part are 0."""
    context, start = make_run(objective="bce", network=NARROW)
    options = {"own": {"mu": 0.1}, "clients_per_round": 2}
    last = run_rounds(2, "fedhybrid", context, start, tiny_data.sizes, **options)[-1]
    store = context.open_store()
    kept = [store.get_state(ref) for ref in last.record.state.private.values()]
    assert 2 <= len(kept) <= 4
    for name, value in store.get_state(last.record.state.server["fedhybrid"]).items():
        own = sum(state[f"dual/{name}"].double() for state in kept) / 4
        assert (own - value).abs().max() < 1e-6, name
