"""Local training, and FedAvg with fine-tuning: bit for bit what trainings written out one by one give."""

import pytest

from flows.methods import load_method
from flows.rounds import one_round
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.round_state import client_model
from tests.support.plain_training import differing, train_plainly
from tests.support.rounds import PLAIN_SGD, make_context, make_federation, run_rounds

pytestmark = pytest.mark.slow


def own(fed, client):
    return fed.context.open_store().get_state(fed.record.state.models[client_model(client)])


def test_local_clients_go_on_from_their_own_models(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD)
    rounds = run_rounds(2, "local", context, start, tiny_data.sizes)
    models = dict.fromkeys(tiny_data.ids, context.open_store().get_state(start))
    for number, fed in enumerate(rounds, 1):
        models = {c: train_plainly(context, models[c], c, number, 1) for c in tiny_data.ids}
        assert all(differing(own(fed, client), models[client]) == [] for client in tiny_data.ids)
        assert fed.record.state.global_model.digest == start.digest, "nothing is averaged"
    sent = [log.bytes_down for fed in rounds for log in fed.record.stages]
    assert sent == [len(tiny_data.ids) * start.bytes, 0], "the initial model, once"
    assert all(log.bytes_up == 0 for fed in rounds for log in fed.record.stages)


def test_an_absent_client_keeps_its_model(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD)
    first, second = run_rounds(2, "local", context, start, tiny_data.sizes, clients_per_round=2)
    for client in set(first.record.participants) - set(second.record.participants):
        assert first.record.state.models[client_model(client)] == second.record.state.models[client_model(client)]
    never = set(tiny_data.ids) - set(first.record.participants) - set(second.record.participants)
    assert never.isdisjoint(second.record.state.personalised)


def test_fine_tuning_starts_from_fedavgs_model_and_leaves_it_alone(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD)
    rounds = run_rounds(2, "fedavg_finetune", context, start, tiny_data.sizes, own={"epochs": 1})
    plain = run_rounds(2, "fedavg", context, start, tiny_data.sizes)
    assert [fed.record.model.digest for fed in rounds] == [fed.record.model.digest for fed in plain]
    for number, fed in enumerate(rounds, 1):
        shared = context.open_store().get_state(fed.record.model)
        for client in tiny_data.ids:
            assert differing(own(fed, client), train_plainly(context, shared, client, number, 2)) == []


def test_fine_tuned_models_are_those_of_rounds_that_are_evaluated(tiny_data, tmp_path):
    """Rounds 2 and 3 of 3 are evaluated; round 1 has no models of clients, and round 3 none of round 2."""
    evaluation = EvaluationSettings(every=2)
    context, start = make_context(tiny_data, tmp_path / "run", train=PLAIN_SGD, evaluation=evaluation)
    module, state, found = load_method("fedavg_finetune"), start, []
    for number in range(1, 4):
        fed = make_federation(context, module.Settings(epochs=1), tiny_data.sizes, number=number, state=state)
        state = one_round(fed, module.run_round, tmp_path / "run", rounds=3).state
        found.append({name: ref.digest for name, ref in state.models.items() if name.startswith("client/")})
    assert [len(models) for models in found] == [0, len(tiny_data.ids), len(tiny_data.ids)]
    assert not set(found[1].values()) & set(found[2].values())
