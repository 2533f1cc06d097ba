"""Robust aggregators: by hand, their neutral cases, client order, what attackers can and cannot do."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import trim_mean

from models.errors import UserError
from tasks.server.aggregate import AggregationJob, aggregate
from tasks.server.aggregators import AGGREGATORS, AggregatorSpec, load_aggregator
from tasks.server.aggregators.geometric_median import weiszfeld_weights
from tasks.server.aggregators.krum import krum_scores, squared_distances
from tasks.server.aggregators.median import median
from tasks.server.aggregators.trimmed_mean import trimmed, trimmed_mean
from tests.support.updates import SCHEMA, make_context, put_start, put_update, random_state

ROBUST = ("median", "trimmed_mean", "geometric_median", "krum", "multi_krum")
PARAMETERS = [name for name, spec in SCHEMA.items() if spec.kind == "parameter"]


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path)


def updates_of(context, states):
    return tuple(put_update(context, f"c{k}", state, 10 + k) for k, state in enumerate(states))


def near(seed, begun, length=0.1):
    """A trained state: a common direction and noise."""
    other, common = random_state(seed), random_state(77)
    return {
        name: value + length * (2 * common[name] + other[name]) if SCHEMA[name].kind == "parameter" else other[name]
        for name, value in begun.items()
    }


def made(context, name, updates, **changes):
    spec = AggregatorSpec(name, changes.pop("values", {}))
    return aggregate(context, AggregationJob(spec, updates, **changes))


def unweighted(context, updates):
    return made(context, "mean", updates, weights=(1 / len(updates),) * len(updates)).models["global"].digest


def test_the_median_by_hand():
    columns = torch.tensor([[3.0, 1.0, 2.0, 10.0], [5.0, 5.0, 0.0, 0.0]]).T
    assert median(list(columns)).tolist() == [2.5, 2.5]
    assert median(list(columns[:3])).tolist() == [2.0, 5.0]
    values = torch.randn(8, 50, generator=torch.Generator().manual_seed(0))
    assert np.allclose(median(list(values)).numpy(), np.median(values.double().numpy(), axis=0))


def test_the_trimmed_mean_by_hand_and_against_scipy():
    values = [torch.tensor([v]) for v in (9.0, 1.0, 4.0, 3.0, 100.0)]
    assert trimmed_mean(values, 1).tolist() == pytest.approx([16 / 3])
    assert trimmed_mean(values, 2).tolist() == [4.0]
    many = torch.randn(11, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for trim in (0.0, 0.1, 0.25, 0.45):
        expected = trim_mean(many.numpy(), trim, axis=0)
        assert np.allclose(trimmed_mean(list(many), trimmed(trim, 11)).numpy(), expected)


@pytest.mark.parametrize(("trim", "clients", "count"), [(0.29, 100, 29), (0.1, 9, 0), (0.2, 5, 1), (0.49, 3, 1)])
def test_the_share_is_rounded_down(trim, clients, count):
    assert trimmed(trim, clients) == count


def test_krum_by_hand():
    # on a line: 0, 1, 2, 10; with f = 0 two neighbours count: 1 + 4, 1 + 1, 1 + 4, 64 + 81
    points = torch.tensor([[0.0], [1.0], [2.0], [10.0]], dtype=torch.float64)
    distances = squared_distances([points], 4)
    assert distances.tolist() == [[0, 1, 4, 100], [1, 0, 1, 81], [4, 1, 0, 64], [100, 81, 64, 0]]
    assert krum_scores(distances, 0).tolist() == [5, 2, 5, 145]
    assert krum_scores(distances, 1).tolist() == [1, 1, 1, 64]


def test_distances_add_up_over_ranges_and_stay_exact_beside_a_huge_update():
    points = torch.randn(6, 70, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points[3] *= 1e30
    split = squared_distances([points[:, :20], points[:, 20:]], 6)
    exact = (points[:, None] - points[None]).square().sum(-1)
    assert torch.allclose(split, exact, rtol=1e-10) and (split >= 0).all()


def weiszfeld(points, prior=None, **options):
    settings = {"smoothing": 1e-9, "iterations": 500, "tolerance": 0.0, "from_zero": False} | options
    prior = prior or [1 / len(points)] * len(points)
    weights = weiszfeld_weights(lambda: [points[:, :1], points[:, 1:]], prior, **settings)
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0
    return weights, torch.tensor(weights, dtype=torch.float64) @ points


def test_the_geometric_median_by_hand():
    # an equilateral triangle: its centre; three points on a line: the middle one
    triangle = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]], dtype=torch.float64)
    assert torch.allclose(weiszfeld(triangle)[1], triangle.mean(0))
    line = torch.tensor([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]], dtype=torch.float64)
    assert torch.allclose(weiszfeld(line)[1], line[1], atol=1e-6)
    # two thirds of the weight at one point: that point
    assert torch.allclose(weiszfeld(line, [0.7, 0.2, 0.1])[1], line[0], atol=1e-6)


@pytest.mark.parametrize("from_zero", [True, False])
def test_the_geometric_median_minimises_the_sum_of_distances(from_zero):
    points = torch.randn(7, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    prior = [0.05, 0.15, 0.2, 0.1, 0.2, 0.1, 0.2]
    best = minimize(
        lambda z: np.dot(prior, np.linalg.norm(points.numpy() - z, axis=1)), np.zeros(3), method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12},
    ).x  # fmt: skip
    assert np.allclose(weiszfeld(points, prior, from_zero=from_zero)[1].numpy(), best, atol=1e-5)


def test_a_very_large_smoothing_gives_the_prior_weights():
    points = torch.randn(4, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert weiszfeld(points, [0.1, 0.2, 0.3, 0.4], smoothing=1e9)[0] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_a_huge_point_is_ignored_at_once_from_zero():
    points = torch.randn(5, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    points[4] = 1e30
    weights, middle = weiszfeld(points, from_zero=True, iterations=20, tolerance=1e-6)
    assert weights[4] < 1e-29 and middle.norm() < 3


NEUTRAL = {
    "trimmed_mean": {"trim": 0.0},
    "multi_krum": {"selected": 7, "byzantine": 2},
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_the_neutral_setting_is_the_unweighted_mean_bit_for_bit(context, name):
    updates = updates_of(context, [random_state(seed) for seed in range(7)])
    assert made(context, name, updates, values=NEUTRAL[name]).models["global"].digest == unweighted(context, updates)


@pytest.mark.parametrize("name", ROBUST)
def test_equal_updates_stay_as_they_are(context, name):
    updates = updates_of(context, [random_state(4)] * 5)
    state = context.open_store().get_state(made(context, name, updates).models["global"])
    assert all(torch.allclose(state[key], value) for key, value in random_state(4).items())


@pytest.mark.parametrize("name", sorted(AGGREGATORS))
def test_the_order_of_clients_changes_nothing(context, name):
    begun = random_state(9)
    updates, start = updates_of(context, [near(seed, begun) for seed in range(5)]), put_start(context, begun)
    assert made(context, name, updates, start=start) == made(context, name, updates[::-1], start=start)


@pytest.mark.parametrize("name", ROBUST)
def test_renaming_the_clients_changes_only_rounding(context, name):
    begun = random_state(9)
    start, states = put_start(context, begun), [near(seed, begun) for seed in range(7)]
    one, other = (
        made(context, name, updates_of(context, order), start=start, weights=(1 / 7,) * 7)
        for order in (states, states[::-1])
    )
    a, b = (context.open_store().get_state(x.models["global"]) for x in (one, other))
    assert all(torch.allclose(a[key], b[key], atol=1e-6) for key in a)


@pytest.mark.parametrize("attack", ["flip", "huge"])
@pytest.mark.parametrize("name", ROBUST)
def test_attackers_move_the_mean_and_not_the_robust_rules(context, name, attack):
    begun = random_state(9)
    honest = [near(seed, begun, length=0.05) for seed in range(8)]
    factor = {"flip": -8.0, "huge": 1e25}[attack]
    bad = [
        state | {key: begun[key] + factor * (state[key] - begun[key]) for key in PARAMETERS}
        for state in (near(seed, begun, length=0.05) for seed in (20, 21))
    ]
    updates, start = updates_of(context, [bad[0], *honest, bad[1]]), put_start(context, begun)
    values = {"krum": {"byzantine": 2}, "multi_krum": {"byzantine": 2}}.get(name, {})
    store = context.open_store()

    def distance(result):
        state = store.get_state(result.models["global"])
        expected = {key: torch.stack([s[key] for s in honest]).mean(0) for key in PARAMETERS}
        return sum(float((state[key] - expected[key]).double().square().sum()) for key in PARAMETERS) ** 0.5

    spread = max(
        sum(float((s[key] - torch.stack([t[key] for t in honest]).mean(0)).square().sum()) for key in PARAMETERS) ** 0.5
        for s in honest
    )
    assert distance(made(context, name, updates, start=start, values=values)) <= spread
    assert distance(made(context, "mean", updates, start=start)) > 2 * spread


def test_krum_takes_one_whole_model_and_multi_krum_the_mean_of_the_best(context):
    begun = random_state(9)
    states = [near(seed, begun) for seed in range(6)]
    states[2] |= {key: begun[key] + 100 for key in PARAMETERS}
    updates, start = updates_of(context, states), put_start(context, begun)
    one = made(context, "krum", updates, start=start)
    ((chosen, weight),) = one.weights["global"].items()
    assert weight == 1 and one.models["global"].digest == updates[int(chosen[1])].model.digest
    points = torch.stack([torch.cat([(s[key] - begun[key]).reshape(-1) for key in PARAMETERS]) for s in states])
    scores = krum_scores((points[:, None] - points[None]).double().square().sum(-1), 1)
    assert scores.argmin() == int(chosen[1])
    several = made(context, "multi_krum", updates, start=start, values={"selected": 3})
    best = {f"c{k}" for k in scores.argsort()[:3].tolist()}
    assert several.weights["global"] == dict.fromkeys(sorted(best), 1 / 3)
    assert "c2" not in made(context, "multi_krum", updates, start=start).weights["global"]


def test_too_few_updates_and_settings_without_sense_are_refused(context):
    updates = updates_of(context, [random_state(seed) for seed in range(4)])
    for name in ("krum", "multi_krum"):
        with pytest.raises(UserError, match=r"needs at least 5 \(2 f \+ 3\) updates"):
            made(context, name, updates)
    with pytest.raises(UserError, match=r"trim 0\.2 of 4 updates leaves nobody out"):  # four of five have reported
        made(context, "trimmed_mean", updates)
    with pytest.raises(UserError, match="more updates are to be selected"):
        made(context, "multi_krum", updates, values={"byzantine": 0, "selected": 5})
    for name, values, participants, message in (
        ("krum", {"byzantine": 2}, 6, "at least 7"),
        ("multi_krum", {"byzantine": 2}, 6, "at least 7"),
        ("multi_krum", {"selected": 9}, 8, "only 8 clients"),
        ("trimmed_mean", {"trim": 0.1}, 9, "leaves nobody out"),
    ):
        module = load_aggregator(name)
        settings = module.Settings(**values)
        with pytest.raises(ValueError, match=message):
            module.check(settings, participants)
        module.check(settings, None)
        module.check(settings, 10)
    load_aggregator("trimmed_mean").check(load_aggregator("trimmed_mean").Settings(trim=0), 1)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("trimmed_mean", {"trim": 0.5}),
        ("fedavgm", {"momentum": 1.0}),
        ("fedavgm", {"lr": 0}),
        ("fedadam", {"beta2": 1.0}),
        ("fedyogi", {"tau": 0}),
        ("geometric_median", {"iterations": 0}),
        ("krum", {"byzantine": -1}),
        ("ema", {"decay": 1.0}),
        ("mean", {"lr": 1}),
    ],
)
def test_settings_out_of_bounds_are_refused(name, values):
    with pytest.raises(ValueError, match=r"validation error"):
        load_aggregator(name).Settings(**values)


def test_weights_of_the_method_count_in_the_geometric_median(context):
    updates = updates_of(context, [random_state(seed) for seed in range(3)])
    result = made(context, "geometric_median", updates, weights=(0.98, 0.01, 0.01), values={"iterations": 200})
    state = context.open_store().get_state(result.models["global"])
    assert all(torch.allclose(state[key], random_state(0)[key], atol=1e-3) for key in PARAMETERS)
    explicit = made(context, "median", updates, rows={"cluster/0": (0.5, 0.5, 0.0), "cluster/1": (0.0, 0.0, 1.0)})
    assert explicit.models["cluster/1"].digest == updates[2].model.digest
    assert dataclasses.asdict(explicit)["evaluated"] == "global"


@pytest.mark.parametrize("name", ROBUST)
def test_what_clients_keep_for_themselves_is_not_compared(context, name):
    """Updates without a tensor that the schema has: the rule of the others, and the tensor as it was sent."""
    begun = random_state(9)
    states = [near(seed, begun) for seed in range(5)]
    short = [{key: value for key, value in state.items() if key != "fc.bias"} for state in states]
    start, store = put_start(context, begun), context.open_store()
    result = made(context, name, updates_of(context, short), start=start)
    same = [state | {"fc.bias": begun["fc.bias"]} for state in states]
    whole = made(context, name, updates_of(context, same), start=start)
    a, b = (store.get_state(found.models["global"]) for found in (result, whole))
    assert a.keys() == b.keys() and torch.equal(a["fc.bias"], begun["fc.bias"])
    assert all(torch.allclose(a[key], b[key]) for key in a) and result.weights == whole.weights
