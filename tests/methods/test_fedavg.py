"""FedAvg's round: what is sent, and the mean by number of images."""

from flows.methods import fedavg
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tests.support.recorder import START, P, Recorder, bytes_of, federation, ref


def test_fedavg_is_one_training_and_one_mean_by_sample_count():
    fed = federation(engine := Recorder(), model="resnet18")
    state = fedavg.run_round(fed, fed.state)
    assert [(j.client, j.stage, j.payload, j.work) for j in engine.jobs] == [
        (client, 1, Payload.of(START, references=()), LocalWork()) for client in "abcd"
    ]
    assert engine.averages == [([ref("trained", c, 1) for c in "abcd"], [0.1, 0.3, 0.2, 0.4])]
    assert state.models.keys() == {"global"} and state.server == {}
    assert state.global_model == ref("mean", [r.digest for r in engine.averages[0][0]], engine.averages[0][1])
    assert fed.record.weights == {"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.4}
    assert bytes_of(fed, "bytes_down") == bytes_of(fed, "bytes_down_naive") == {"local training": 4 * P}
    assert bytes_of(fed, "bytes_up") == {"local training": 4 * P}
