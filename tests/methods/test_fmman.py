"""FMMAN with one client: one training without clusters, two with one cluster."""

from tests.support.rounds import LABEL_AWARE, run_round

OFF = {"lambda_contrast": 0, "lambda_prox": 0, "w_rec": 0, "w_con": 0, "use_uncertainty": False}
STATELESS = {"name": "fmman", **LABEL_AWARE, "fmman": LABEL_AWARE["fmman"] | {"use_state": False}}


def test_one_client_without_extra_losses_trains_once_or_with_a_cluster_twice(make_run, tiny_data):
    """With one client K is 1: stage 3 goes on from stage 1, so a cycle is two trainings and their average is itself."""
    context, start = make_run("fmman", objective="fmman", settings=OFF, network=STATELESS)
    one = {tiny_data.ids[0]: 11}
    single = run_round("fmman", context, start, one, own={"clustering": "none"})
    average = run_round("fedavg", context, start, one)
    assert single.record.model.digest == average.record.model.digest
    both = run_round("fmman", context, start, one, own={"clusters": 1})
    assert both.record.model.digest != single.record.model.digest
