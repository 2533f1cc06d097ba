"""FedCor's Gaussian process: likelihood, fit, greedy selection, and the server's state."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.randomness import torch_generator
from tasks.server import fedcor, fedcor_gp
from tests.support.rounds import NARROW

DOUBLE = torch.float64
OPTIONS = {"gamma": 0.95, "steps": 50, "lr": 0.01, "group_size": 100, "normalise": False}


def numbers(seed, *shape):
    return torch.randn(*shape, generator=torch_generator(seed, "test"), dtype=DOUBLE)


def test_the_initial_factor_gives_variances_of_about_one():
    factor = fedcor_gp.initial_factor(15, 400, torch_generator(1, "start"))
    assert factor.dtype == DOUBLE and factor.shape == (15, 400)
    assert float(fedcor_gp.covariance(factor).diagonal().mean()) == pytest.approx(1.0, abs=0.05)


def test_the_likelihood_is_that_of_the_normal_distribution():
    factor, mean, changes, weights = numbers(1, 3, 5), numbers(2, 5), numbers(3, 4, 5), numbers(4, 4).abs()
    normal = torch.distributions.MultivariateNormal(mean, factor.T @ factor + 1e-4 * torch.eye(5, dtype=DOUBLE))
    expected = -(weights * normal.log_prob(changes)).sum()
    assert float(fedcor_gp.weighted_nll(factor, mean, changes, weights)) == pytest.approx(float(expected), rel=1e-5)


def test_older_records_weigh_less():
    assert fedcor_gp.record_weights(torch.tensor([3, 7, 5]), 0.5).tolist() == [1 / 16, 1.0, 1 / 4]
    changes = torch.tensor([[1.0, 4.0], [4.0, 1.0]], dtype=DOUBLE)
    _, mean = fedcor_gp.fit(numbers(1, 2, 2), changes, torch.tensor([1, 2]), gamma=0.5, steps=1, lr=0.01)
    assert mean.tolist() == [3.0, 2.0]  # weights 1/2 and 1: (0.5 + 4) / 1.5 and (2 + 1) / 1.5


def test_fitting_raises_the_likelihood():
    changes, rounds = 0.3 * numbers(5, 15, 6), torch.arange(1, 16)
    weights = fedcor_gp.record_weights(rounds, 0.95)
    start = fedcor_gp.initial_factor(4, 6, torch_generator(2, "start"))
    losses = []
    for steps in (1, 100, 400):
        factor, mean = fedcor_gp.fit(start, changes, rounds, gamma=0.95, steps=steps, lr=0.01)
        losses.append(float(fedcor_gp.weighted_nll(factor, mean, changes, weights)))
    assert losses[0] > losses[1] > losses[2]


def test_a_planted_covariance_is_recovered():
    # Clients 0-2 move together, 3-4 too, 5 alone; deviations 1, 0.5 and 0.2.
    planted = torch.zeros(3, 6, dtype=DOUBLE)
    planted[0, :3], planted[1, 3:5], planted[2, 5] = 1.0, 0.5, 0.2
    changes = numbers(6, 300, 3) @ planted + 0.01 * numbers(7, 300, 6) - 0.1
    start = fedcor_gp.initial_factor(15, 6, torch_generator(3, "start"))
    factor, mean = fedcor_gp.fit(start, changes, torch.arange(300), gamma=1.0, steps=400, lr=0.01)
    assert torch.allclose(fedcor_gp.covariance(factor), planted.T @ planted, atol=0.15)
    assert torch.allclose(mean, torch.full((6,), -0.1, dtype=DOUBLE), atol=0.12)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 8))
def test_the_variance_of_a_chosen_client_is_zero(seed, n):
    sigma, shares = fedcor_gp.covariance(numbers(seed, 3, n)), torch.full((n,), 1 / n, dtype=DOUBLE)
    order = fedcor_gp.greedy_selection(sigma, shares, torch.ones(n, dtype=DOUBLE), n)
    assert sorted(order) == list(range(n))
    for k in order:
        sigma = fedcor_gp.condition(sigma, k)
        assert float(sigma[k].abs().max()) < 1e-12 and float(sigma.diagonal().min()) > -1e-12


@given(seed=st.integers(0, 10**6), share=st.floats(0.05, 0.9))
def test_two_clones_are_not_both_selected_before_an_independent_client(seed, share):
    # Clients 0 and 1 are clones, 2 shares nothing with them and may be a tenth of the images.
    column = numbers(seed, 4)
    factor = torch.zeros(5, 3, dtype=DOUBLE)
    factor[:4, 0] = factor[:4, 1] = column / column.norm()
    factor[4, 2] = 1.0
    shares = torch.tensor([share, 0.95 - share, 0.05], dtype=DOUBLE)
    assert 2 in fedcor_gp.greedy_selection(fedcor_gp.covariance(factor), shares, torch.ones(3, dtype=DOUBLE), 2)


def test_the_greedy_scores_by_hand():
    # Scores of the first choice are (Sigma p)_k / sqrt(Sigma_kk): 1.6/2, 0.85/1, 0.75/1 with p = (.3, .4, .3).
    sigma = torch.tensor([[4.0, 1.0, 0.0], [1.0, 1.0, 0.5], [0.0, 0.5, 1.0]], dtype=DOUBLE)
    shares, even = torch.tensor([0.3, 0.4, 0.3], dtype=DOUBLE), torch.ones(3, dtype=DOUBLE)
    assert fedcor_gp.greedy_selection(sigma, shares, even, 1) == [1]
    # Conditioned on 1: [[3, -.5], [-.5, .75]] for 0 and 2; scores (.9 - .15) / sqrt 3 = .433, (.225 - .15) / sqrt .75.
    assert fedcor_gp.condition(sigma, 1)[[0, 2]][:, [0, 2]].tolist() == [[3.0, -0.5], [-0.5, 0.75]]
    assert fedcor_gp.greedy_selection(sigma, shares, even, 3) == [1, 0, 2]
    assert fedcor_gp.greedy_selection(sigma, shares, torch.tensor([1.0, 0.9, 1.0], dtype=DOUBLE), 1) == [
        0
    ]  # 0.85 * 0.9 = 0.765 < 0.8


def test_ties_go_to_the_first_client_and_permuting_clients_permutes_the_choice():
    even = torch.ones(5, dtype=DOUBLE)
    assert fedcor_gp.greedy_selection(torch.eye(5, dtype=DOUBLE), even / 5, even, 3) == [0, 1, 2]
    sigma, shares, turned = fedcor_gp.covariance(numbers(9, 3, 5)), numbers(8, 5).abs(), torch.tensor([3, 0, 4, 2, 1])
    there = fedcor_gp.greedy_selection(sigma[turned][:, turned], shares[turned], even, 4)
    assert [int(turned[k]) for k in there] == fedcor_gp.greedy_selection(sigma, shares, even, 4)


def test_the_standard_deviation_is_around_each_clients_mean():
    assert fedcor_gp.standard_deviation(torch.tensor([[1.0, 10.0], [3.0, 14.0]])) == pytest.approx(
        math.sqrt((1 + 1 + 4 + 4) / 4)
    )
    assert fedcor_gp.standard_deviation(torch.tensor([[1.0, 2.0]])) == 1.0


def state_of(context, ref):
    return context.open_store().get_state(ref)


def recorded(context, rows, warm=True):
    ref = None
    for number, losses in enumerate(rows, 1):
        ref = fedcor.record_client_losses(context, ref, losses, number, 2, warm)
    return ref


def test_the_warm_up_records_each_change_with_its_round(make_run):
    context, _ = make_run(objective="bce", network=NARROW)
    first = recorded(context, [[1.0, 2.0, 4.0]])
    assert "changes" not in state_of(context, first)
    state = state_of(context, recorded(context, [[1.0, 2.0, 4.0], [0.5, 2.5, 4.0], [0.25, 2.0, 3.0]]))
    assert state["changes"].tolist() == [[-0.5, 0.5, 0.0], [-0.25, -0.5, -1.0]] and state["rounds"].tolist() == [1, 2]
    assert state["losses"].tolist() == [0.25, 2.0, 3.0] and int(state["losses_round"]) == 3
    assert "changes" not in state_of(context, recorded(context, [[1.0, 2.0], [0.5, 2.5]], warm=False))
    # A client without a loss makes no record, nor does a change over more than one round.
    gap = fedcor.record_client_losses(context, recorded(context, [[1.0, math.nan], [1.0, 2.0]]), [0.5, 1.0], 4, 2, True)
    assert "changes" not in state_of(context, gap) and state_of(context, gap)["losses"].tolist() == [0.5, 1.0]


def test_fitting_adds_the_probing_change_drops_old_records_and_resets_the_discounts(make_run):
    context, _ = make_run(objective="bce", network=NARROW)
    ref = recorded(context, [[1.0, 2.0, 4.0], [0.5, 2.5, 4.0], [0.25, 2.0, 3.0]])
    chosen, ref = fedcor.select_clients(context, ref, [10, 10, 20], 2, 0.5)
    assert sorted(state_of(context, ref)["discount"][chosen].tolist()) == [0.5, 0.5] and len(set(chosen)) == 2
    again, twice = fedcor.select_clients(context, ref, [10, 10, 20], 3, 0.5)
    assert sorted(again) == [0, 1, 2] and sorted(state_of(context, twice)["discount"].tolist()) == [0.25, 0.25, 0.5]
    before = state_of(context, ref)
    fitted = state_of(context, fedcor.fit_process(context, ref, [0.0, 1.0, 3.5], 12, OPTIONS | {"group_size": 10}))
    assert fitted["changes"].tolist() == [[-0.25, -0.5, -1.0], [-0.25, -1.0, 0.5]]
    assert fitted["rounds"].tolist() == [2, 12] and fitted["discount"].tolist() == [1.0, 1.0, 1.0]
    assert not torch.equal(fitted["factor"], before["factor"]) and "scale" not in fitted
    weights = fedcor_gp.record_weights(fitted["rounds"], 0.95)
    assert torch.allclose(fitted["mean"], (weights[:, None] * fitted["changes"]).sum(0) / weights.sum())


def test_records_are_scaled_by_the_standard_deviation_of_the_warm_up(make_run):
    context, _ = make_run(objective="bce", network=NARROW)
    ref = recorded(context, [[1.0, 2.0, 4.0], [0.5, 2.5, 4.0], [0.25, 2.0, 3.0]])
    ref = fedcor.fit_process(context, ref, None, 3, OPTIONS | {"normalise": True})
    scale = fedcor_gp.standard_deviation(state_of(context, ref)["changes"])
    later = state_of(context, fedcor.fit_process(context, ref, [9.0, 9.0, 9.0], 4, OPTIONS | {"normalise": True}))
    assert float(later["scale"]) == pytest.approx(scale) and later["changes"][-1].tolist() == [8.75, 7.0, 6.0]
    weights = fedcor_gp.record_weights(later["rounds"], 0.95)
    assert torch.allclose(later["mean"] * scale, (weights[:, None] * later["changes"]).sum(0) / weights.sum())


def test_without_records_the_process_keeps_its_initial_factor(make_run):
    context, _ = make_run(objective="bce", network=NARROW)
    ref = recorded(context, [[math.nan, 1.0], [math.nan, 2.0]])
    assert torch.equal(
        state_of(context, fedcor.fit_process(context, ref, None, 2, OPTIONS))["factor"],
        state_of(context, ref)["factor"],
    )


def test_validation_images_are_used_if_every_client_has_some(make_run, monkeypatch):
    context, _ = make_run(objective="bce", network=NARROW)
    from tasks.data.clients import load_clients

    ids = load_clients(context.clients).ids
    counts = {client: len(load_clients(context.clients).rows(client, "val", "labelled")) for client in ids}
    assert fedcor.held_out_split(context, ids, "auto") == ("val" if min(counts.values()) else "train")
    assert fedcor.held_out_split(context, ids, "train") == "train"
    monkeypatch.setattr("tasks.data.clients.Clients.rows", lambda _self, client, *_: [] if client == ids[1] else [7])
    assert (
        fedcor.held_out_split(context, ids, "auto") == "train"
        and fedcor.held_out_split(context, [ids[0]], "auto") == "val"
    )
    assert fedcor.held_out_split(context, [ids[0]], "val") == "val"
    with pytest.raises(UserError, match=f"no validation images(.|\n)*none at {ids[1]}"):
        fedcor.held_out_split(context, ids, "val")


def test_a_failing_fit_is_reported():
    changes = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with pytest.raises(UserError, match="Gaussian process cannot be fitted"):
        fedcor_gp.fit(torch.ones(2, 3, dtype=torch.float64), changes, torch.arange(4), gamma=0.9, steps=50, lr=1e200)


def test_required_clients_are_refused():
    fedcor = ["method.name=fedcor", "partition.scheme=iid", "partition.clients=6", "federation.clients_per_round=2"]
    with pytest.raises(UserError, match="none can be required"):
        load_settings(None, ["tiny"], [*fedcor, "federation.required=[client-001]"])
    load_settings(None, ["tiny"], fedcor)
