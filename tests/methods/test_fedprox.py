"""FedProx's round: FedAvg with a regulariser; without weight it is held to FedAvg by the contract suite."""

import pytest

from flows.methods import fedavg, fedhybrid, fedprox
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tests.support.recorder import START, P, Recorder, bytes_of, federation, trained


def played(method, settings):
    fed = federation(engine := Recorder(), settings, model="resnet18")
    return fed, engine, method.run_round(fed, fed.state)


@pytest.mark.parametrize("settings", [fedprox.Settings(mu=0.3), fedhybrid.Settings(mu=0.3, version="prox")])
def test_the_regulariser_is_all_that_differs_from_fedavg(settings):
    method = fedprox if isinstance(settings, fedprox.Settings) else fedhybrid
    fed, engine, state = played(method, settings)
    work = LocalWork(regularisers=(RegulariserSpec("prox", {"mu": 0.3}),))
    assert [(j.client, j.payload, j.work) for j in engine.jobs] == [
        (c, Payload.of(START, references=()), work) for c in "abcd"
    ]
    assert engine.averages == [(trained("abcd"), [0.1, 0.3, 0.2, 0.4])]
    plain, _, average = played(fedavg, fedavg.Settings())
    assert state.models == average.models and fed.record.weights == plain.record.weights and state.server == {}
    assert bytes_of(fed, "bytes_down") == bytes_of(plain, "bytes_down") == {"local training": 4 * P}
