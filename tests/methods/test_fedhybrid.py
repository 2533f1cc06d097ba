"""FedHybrid ends at the minimiser of the clients' mean loss; its server step on real states."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from flows.methods.fedhybrid import Settings
from tasks.client.objectives import Loss
from tasks.client.regularisers import RegulariserContext, load_regulariser
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.records import Update
from tasks.server import fedhybrid
from tasks.server.aggregate import aggregate
from tasks.server.aggregation import weighted_mean
from tasks.server.aggregation_job import AggregationJob
from tests.support.rounds import NARROW

N, D = 6, 3


class Point(nn.Module):
    """A network that is one vector x [D]."""

    def __init__(self, x):
        super().__init__()
        self.x = nn.Parameter(x.clone())


class Quadratics:
    """Clients with f_i(x) = 1/2 (x - b_i)^T A_i (x - b_i), random positive definite A_i and b_i far from each other."""

    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)
        roots = torch.randn(N, D, D, generator=self.rng, dtype=torch.float64)
        self.a = roots @ roots.mT / D + torch.eye(D, dtype=torch.float64)
        self.b = 2 * torch.randn(N, D, generator=self.rng, dtype=torch.float64)

    def minimiser(self, weights):
        """Of sum_i w_i f_i: (sum w_i A_i)^-1 sum w_i A_i b_i."""
        w = torch.tensor(weights, dtype=torch.float64)
        return torch.linalg.solve(torch.einsum("i,ijk->jk", w, self.a), torch.einsum("i,ijk,ik->j", w, self.a, self.b))

    def train(self, i, x_0, name, values, state):
        """The exact local minimum with a regulariser, by one Newton step: (x_i, the regulariser's new state)."""
        model = Point(x_0)
        regulariser = load_regulariser(name).make(RegulariserContext(model, (), values, state, {}, SimpleNamespace()))
        gap = model.x - self.b[i]
        regulariser.change(Loss(0.5 * gap @ self.a[i] @ gap), None).total.backward()
        hessian = values.get("scale", 1.0) * self.a[i] + values["mu"] * torch.eye(D, dtype=torch.float64)
        with torch.no_grad():
            model.x -= torch.linalg.solve(hessian, model.x.grad)
        return model.x.detach().clone(), regulariser.finish(1)

    def participants(self, share):
        """All clients, half of them, or a random number."""
        some = int(torch.randint(1, N, (), generator=self.rng))
        count = {"all": N, "half": N // 2, "some": some}[share]
        return sorted(torch.randperm(N, generator=self.rng)[:count].tolist())


def play(task, share, mu=3.0, scales=(1.0,) * N, clients=lambda ids: N, rounds=120):
    """FedHybrid from 0; ``clients(ids)`` is what the server takes for the number of all clients."""
    x, mean = torch.zeros(2, D, dtype=torch.float64)
    states = [{} for _ in range(N)]
    for _ in range(rounds):
        back, ids = [], task.participants(share)
        for i in ids:
            trained, states[i] = task.train(i, x, "dual", {"mu": mu, "scale": scales[i]}, states[i])
            back.append(trained)
        mean = fedhybrid.next_mean_dual(mean, x, back, mu, clients(ids))
        x = fedhybrid.corrected_mean(back, mean, mu)
    return x, mean, states


@pytest.mark.parametrize("share", ["all", "half", "some"])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_reaches_the_minimiser(share, seed):
    task = Quadratics(seed)
    x, mean, states = play(task, share)
    best = task.minimiser([1.0] * N)
    assert (x - best).norm() < 1e-8 < 0.05 < best.norm()
    for i, state in enumerate(states):  # each dual is its client's gradient at the minimum, and they add up to 0
        assert torch.allclose(state["x"], task.a[i] @ (best - task.b[i]), atol=1e-8)
    assert torch.allclose(mean, torch.stack([state["x"] for state in states]).mean(0), atol=1e-12)


@pytest.mark.parametrize("share", ["all", "half"])
def test_with_scales_it_reaches_the_minimiser_weighted_by_size(share):
    sizes = [5, 40, 10, 20, 80, 15]
    task, scales = Quadratics(2), [N * size / sum(sizes) for size in sizes]
    x, _, _ = play(task, share, scales=scales)
    assert (x - task.minimiser(sizes)).norm() < 1e-7 < 0.05 < (x - task.minimiser([1.0] * N)).norm()


def test_the_number_of_participants_is_not_the_number_of_clients():
    task = Quadratics(0)
    x, _, _ = play(task, "some", clients=len)
    assert (x - task.minimiser([1.0] * N)).norm() > 0.05
    # Two of six, x_0 = 1 and x_i = 0, 4: the duals change by (1 - 0) + (1 - 4) = -2, over all six clients
    one, values = torch.tensor([1.0]), [torch.tensor([0.0]), torch.tensor([4.0])]
    mean = fedhybrid.next_mean_dual(torch.tensor([0.5], dtype=torch.float64), one, values, 3.0, 6)
    assert mean.tolist() == [0.5 - 3 * 2 / 6] and fedhybrid.corrected_mean(values, mean, 3.0).tolist() == [2 + 0.5 / 3]


@pytest.mark.parametrize("mu", [0.1, 1.0, 10.0])
def test_the_proximal_version_ends_elsewhere(mu):
    task = Quadratics(0)
    x = torch.zeros(D, dtype=torch.float64)
    for _ in range(150):
        x = weighted_mean([task.train(i, x, "prox", {"mu": mu}, {})[0] for i in range(N)], [1 / N] * N)
    assert (x - task.minimiser([1.0] * N)).norm() > 0.02


def test_settings_that_cannot_work_are_refused():
    assert Settings(version="prox", mu=0).mu == 0
    with pytest.raises(ValueError, match="mu must be above 0"):
        Settings(mu=0)
    with pytest.raises(ValueError, match="weighting is used by version dual only"):
        Settings(version="prox", weighting="size")


def test_the_server_steps_parameters_and_averages_buffers_by_sample_count(make_run):
    context, start = make_run(objective="bce", network=NARROW)
    store, draws = context.open_store(), torch.Generator().manual_seed(4)
    begin = store.get_state(start)

    def trained(name):
        state = {
            k: v + 1 if v.dtype == torch.int64 else v + torch.rand(v.shape, generator=draws) for k, v in begin.items()
        }
        return store.put_state(f"updates/{name}.safetensors", state), state

    (ref_a, a), (ref_b, b) = trained("a"), trained("b")
    spec, ids = AggregatorSpec("tasks.server.fedhybrid", {"mu": 0.5}), {"a": (ref_a, 10), "b": (ref_b, 30)}

    def step(clients, start, state):
        updates = tuple(Update(client, *ids[client], 1, {}, 0.1) for client in clients)
        made = aggregate(context, AggregationJob(spec, updates, start, state=state, facts={"clients": 4}))
        assert made.weights["global"] == dict.fromkeys(clients, 1 / len(clients))
        return made.models["global"], made.state

    model, mean = step("ab", start, None)
    state, duals = store.get_state(model), store.get_state(mean)
    buffers = {k for k in begin if "running" in k or "num_batches" in k}
    assert state.keys() == begin.keys() and duals.keys() == begin.keys() - buffers and buffers
    for key, value in begin.items():
        assert state[key].dtype == value.dtype
        if key in duals:
            change = 0.5 * ((value - a[key]) + (value - b[key])).double() / 4
            assert torch.allclose(duals[key], change, atol=1e-6), key
            want = (a[key] + b[key]) / 2 - duals[key] / 0.5
        else:
            want = a[key] if value.dtype == torch.int64 else (10 * a[key] + 30 * b[key]) / 40
        assert torch.allclose(state[key].double(), want.double(), atol=1e-5), key
    # The next round goes on from there, and a repeated call finds what is done
    again, later = step("a", model, mean)
    key = "readout.weight"
    want = duals[key] + 0.5 * (state[key] - a[key]).double() / 4
    assert torch.allclose(store.get_state(later)[key], want, atol=1e-7)
    files = len(store.names("updates"))
    assert step("a", model, mean) == (again, later)
    assert len(store.names("updates")) == files
