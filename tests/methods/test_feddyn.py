"""FedDyn: its fixed point on quadratics and its recursions on real training, both as the paper writes them."""

import pytest
import torch

from tasks.client.regularisers.fedhybrid import next_dual
from tasks.core.state_schema import parameters_of, read_schema
from tasks.server.fedhybrid import corrected_mean, next_mean_dual
from tests.support.rounds import make_context, partitioned, run_round, run_rounds

M, D = 5, 3


def quadratics():
    """f_i(x) = (x - b_i)^T A_i (x - b_i) / 2 with random positive definite A_i."""
    generator = torch.Generator().manual_seed(4)
    roots = torch.randn(M, D, D, generator=generator, dtype=torch.float64)
    eye = torch.eye(D, dtype=torch.float64)
    return roots @ roots.mT / D + eye, 2 * torch.randn(M, D, generator=generator, dtype=torch.float64)


def minimiser(a, b, p):
    return torch.linalg.solve(torch.einsum("i,ijk->jk", p, a), torch.einsum("i,ijk,ik->j", p, a, b))


@pytest.mark.parametrize("per_round", [M, 2])
@pytest.mark.parametrize("sizes", [[1, 1, 1, 1, 1], [10, 20, 30, 40, 50]])
def test_the_published_recursions_and_ours_reach_the_weighted_minimiser(per_round, sizes):
    """Algorithm 1 on the left: g_i, h; the functions of the method on the right: y_i and their mean. alpha = 1."""
    (a, b), alpha = quadratics(), 1.0
    p = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
    w, h = torch.zeros(D, dtype=torch.float64), torch.zeros(D, dtype=torch.float64)
    g, dual, mean_dual = torch.zeros(M, D, dtype=torch.float64), torch.zeros(M, D, dtype=torch.float64), h.clone()
    lot = torch.Generator().manual_seed(9)
    for _ in range(150 if per_round == M else 600):
        chosen = sorted(torch.randperm(M, generator=lot)[:per_round].tolist())
        theta = {}
        for i in chosen:  # the exact local minimum of m p_i f_i - <g_i, x> + alpha/2 |x - w|^2
            scaled = M * p[i] * a[i]
            theta[i] = torch.linalg.solve(
                scaled + alpha * torch.eye(D, dtype=torch.float64), scaled @ b[i] + g[i] + alpha * w
            )
            g[i] = g[i] - alpha * (theta[i] - w)
            dual[i] = next_dual(dual[i], w, theta[i], alpha)
        values = [theta[i] for i in chosen]
        h = h - alpha / M * sum(value - w for value in values)
        mean_dual = next_mean_dual(mean_dual, w, values, alpha, M)
        ours = corrected_mean(values, mean_dual, alpha)
        w = sum(values) / len(values) - h / alpha
        assert torch.allclose(ours, w, atol=1e-9) and torch.allclose(dual, g, atol=1e-12)
    assert torch.allclose(w, minimiser(a, b, p), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("per_round", [None, 2])
def test_rounds_of_real_training_follow_the_published_recursions(tiny_data, tmp_path, per_round):
    context, start = make_context(tiny_data, tmp_path / "run", train={"lr": 0.01})
    alpha, store = 0.2, context.open_store()
    own = {"alpha": alpha}
    rounds = run_rounds(3, "feddyn", context, start, tiny_data.sizes, own=own, clients_per_round=per_round)
    names, m = parameters_of(read_schema(context)), len(tiny_data.ids)
    h = dict.fromkeys(names, 0.0)
    g = {client: dict(h) for client in tiny_data.ids}
    begun = store.get_state(start)
    for fed in rounds:
        trained = {u.client: store.get_state(u.model) for u in fed.record.updates[1]}
        after = store.get_state(fed.record.model)
        for name in names:
            w, thetas = begun[name].double(), {c: state[name].double() for c, state in trained.items()}
            for client, theta in thetas.items():
                g[client][name] = g[client][name] - alpha * (theta - w)
            h[name] = h[name] - alpha / m * sum(theta - w for theta in thetas.values())
            expected = sum(thetas.values()) / len(thetas) - h[name] / alpha
            assert torch.allclose(after[name].double(), expected, atol=1e-6), name
        for client in trained:
            kept = store.get_state(fed.record.state.private[client])
            assert all(torch.allclose(kept[f"dual/{n}"].double(), g[client][n], atol=1e-6) for n in names)
        begun = after


@pytest.mark.slow
def test_it_is_fedhybrids_dual_version_bit_for_bit(tiny_data, tmp_path):
    context, start = make_context(tiny_data, tmp_path / "run")
    for weighting in ("uniform", "size"):
        ours = run_rounds(2, "feddyn", context, start, tiny_data.sizes, own={"alpha": 0.3, "weighting": weighting})
        theirs = run_rounds(2, "fedhybrid", context, start, tiny_data.sizes, own={"mu": 0.3, "weighting": weighting})
        assert [fed.record.model.digest for fed in ours] == [fed.record.model.digest for fed in theirs]


@pytest.mark.slow
def test_without_penalty_it_is_the_plain_or_the_weighted_mean(tiny_data, tmp_path):
    data = partitioned(tiny_data.dataset, tmp_path / "clients", scheme="iid", clients=3)
    sizes = data.sizes
    assert len(set(sizes.values())) == 2
    context, start = make_context(data, tmp_path / "run")
    uniform, size = (
        run_round("feddyn", context, start, sizes, own={"alpha": 0, "weighting": weighting})
        for weighting in ("uniform", "size")
    )
    assert set(uniform.record.weights.values()) == {1 / len(sizes)} and not uniform.record.state.private
    total = sum(sizes.values())
    assert size.record.weights == {c: n / total for c, n in sizes.items()} and not size.record.state.server
