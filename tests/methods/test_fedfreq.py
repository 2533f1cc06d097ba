"""FedFreq in rounds: participations are counted, kept and resumed; equal ones are the uniform mean bit for bit."""

import pytest

from flows.methods import fedavg
from tasks.core.records import RoundRecord
from tasks.core.weighting_settings import WeightingSettings
from tests.support.recorder import Recorder, federation
from tests.support.rounds import make_context, partitioned, run_round, run_rounds


def play(rounds, state=None, silent=(), **settings):
    """Rounds of FedAvg without training: [(weights, participations)]; the state is written and read in between."""
    found, weighting = [], WeightingSettings(name="fedfreq")
    for number in rounds:
        fed = federation(
            engine := Recorder(silent=silent.get(number, ()) if silent else ()),
            model="resnet18",
            number=number,
            **({"state": state} if state else {}),
            **settings,
        )
        fed.context.weighting = weighting
        fed.record.state = fedavg.run_round(fed, fed.state)
        state = RoundRecord.of(fed.record.as_dict()).state
        ((_, weights),) = engine.averages
        found.append((weights, dict(state.participations)))
    return found, state


def test_participations_count_who_reported_and_survive_the_record():
    found, _ = play([1, 2, 3], silent={1: "ab", 2: "b"})
    assert found[0] == ([0.5, 0.5], {"c": 1, "d": 1})
    # q = 1, 2, 2 of a, c, d: p = 1/5, 2/5, 2/5
    assert found[1] == ([pytest.approx(0.4), pytest.approx(0.3), pytest.approx(0.3)], {"a": 1, "c": 2, "d": 2})
    # q = 2, 1, 3, 3: p = 2/9, 1/9, 1/3, 1/3
    assert found[2] == (
        [pytest.approx(7 / 27), pytest.approx(8 / 27), pytest.approx(2 / 9), pytest.approx(2 / 9)],
        {"a": 2, "b": 1, "c": 3, "d": 3},
    )


def test_a_resumed_run_counts_on():
    whole, end = play([1, 2, 3, 4], clients_per_round=2)
    _, state = play([1, 2], clients_per_round=2)
    rest, again = play([3, 4], state, clients_per_round=2)
    assert rest == whole[2:] and again == end and sum(end.participations.values()) == 8


def test_two_averages_of_a_round_count_it_once():
    fed = federation(engine := Recorder(), model="resnet18")
    fed.context.weighting = WeightingSettings(name="fedfreq")
    updates = [engine.update(type("Job", (), {"client": c, "stage": 1})) for c in "abc"]
    fed.aggregate(updates, fed.state.global_model, name="one part")
    fed.aggregate(updates[:2], fed.state.global_model, name="another part")
    assert fed.state.participations == {"a": 1, "b": 1, "c": 1}


def test_other_weightings_keep_no_counts():
    fed = federation(Recorder(), model="resnet18")
    fedavg.run_round(fed, fed.state)
    assert fed.state.participations == {}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_full_participation_is_the_uniform_mean_bit_for_bit(method, tiny_data, tmp_path):
    data = partitioned(tiny_data.dataset, tmp_path / "three", scheme="iid", clients=3)
    assert len(set(data.sizes.values())) == 2
    models = {}
    for name in ("uniform", "fedfreq", "samples"):
        context, start = make_context(data, tmp_path / name, weighting=WeightingSettings(name=name))
        rounds = run_rounds(2, method, context, start, data.sizes)
        models[name] = [fed.record.model.digest for fed in rounds]
    assert models["fedfreq"] == models["uniform"] != models["samples"]


@pytest.mark.slow
def test_sampled_rounds_have_its_weights(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path, weighting=WeightingSettings(name="fedfreq"))
    first, second = run_rounds(2, "fedavg", context, start, tiny_data.sizes, clients_per_round=3)
    counts, (a, b, c) = second.record.state.participations, second.record.participants
    total = counts[a] + counts[b] + counts[c]
    assert second.record.weights == {k: pytest.approx((1 - counts[k] / total) / 2) for k in (a, b, c)}
    assert len(set(second.record.weights.values())) == 2, "one of them is new, the others are not"
    again = run_round("fedavg", context, start, tiny_data.sizes, before=first, clients_per_round=3)
    assert again.record.model == second.record.model
