"""The section aggregation: what is chosen, what is refused before work starts, what is part of a run's identity."""

import pytest

from flows.methods import METHODS, fedavg
from flows.run.inputs import result_settings
from flows.settings.consistency import check_aggregation, unused_aggregators
from flows.settings.files import load_settings
from models.errors import UserError
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.server.aggregators import AGGREGATORS
from tasks.server.aggregators.settings import AggregationSettings


def settings(*overrides):
    return load_settings(None, ["tiny"], ["method.name=fedavg", *overrides])


def test_the_default_is_the_mean_without_transforms():
    aggregation = settings().aggregation
    assert aggregation.spec == AggregatorSpec("mean", {}) and aggregation.transforms == []


@pytest.mark.parametrize("name", AGGREGATORS)
def test_every_aggregator_can_be_chosen(name):
    chosen = settings(f"aggregation.name={name}").aggregation
    assert chosen.spec.name == name and chosen.spec.values == chosen.chosen.model_dump()


def test_transforms_are_a_list_in_order():
    overrides = "aggregation.client_transforms=[{name: sign_flip, clients: [a]}, {name: clip_norm, max_norm: 2}]"
    aggregation = settings(overrides).aggregation
    assert aggregation.transforms == ["sign_flip", "clip_norm"]
    assert aggregation.client_transforms[1].max_norm == 2 and aggregation.server_transforms == ()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("aggregation.name=average", "no such aggregator; known: mean"),
        ("aggregation.client_transforms=[{name: noise}]", "clip_norm"),
        ("aggregation.server_transforms=[{name: clip_norm}]", "max_norm"),
        ("aggregation.server_transforms=[{name: clip_norm, max_nrm: 1, max_norm: 1}]", "did you mean max_norm"),
        ("aggregation.fedadam.rate=1", "unknown key"),
    ],
)
def test_what_does_not_exist_is_refused(override, message):
    with pytest.raises(UserError, match=message):
        settings(override)


def test_too_few_participants_are_refused_before_the_work():
    with pytest.raises(UserError, match=r"krum.byzantine 3 needs at least 9"):
        settings("aggregation.name=krum", "aggregation.krum.byzantine=3", "federation.clients_per_round=8")
    known_later = settings("aggregation.name=krum", "aggregation.krum.byzantine=3")
    with pytest.raises(ValueError, match="found 4"):
        check_aggregation(known_later, 4)
    check_aggregation(known_later, 9)
    with pytest.raises(UserError, match="leaves nobody out"):
        settings("aggregation.name=trimmed_mean", "aggregation.trimmed_mean.trim=0.1", "federation.clients_per_round=5")


@pytest.mark.parametrize("accepts", [False, lambda method: isinstance(method, str)])
def test_a_method_with_its_own_server_step_takes_the_mean_only(monkeypatch, accepts):
    monkeypatch.setattr(fedavg, "ACCEPTS_AGGREGATOR", accepts, raising=False)
    with pytest.raises(UserError, match=r"cannot be combined with method\.name fedavg"):
        settings("aggregation.name=median")
    settings("aggregation.name=mean")
    monkeypatch.setattr(fedavg, "ACCEPTS_AGGREGATOR", lambda method: method is not None)
    settings("aggregation.name=median")


def test_the_chosen_aggregator_and_transforms_are_part_of_the_identity():
    base = result_settings(settings(), "multi_label")["aggregation"]
    others = [
        settings("aggregation.name=median"),
        settings("aggregation.name=fedadam"),
        settings("aggregation.name=fedadam", "aggregation.fedadam.lr=0.5"),
        settings("aggregation.client_transforms=[{name: clip_norm, max_norm: 1}]"),
        settings("aggregation.server_transforms=[{name: clip_norm, max_norm: 1}]"),
        settings("aggregation.weighting.name=uniform"),
        settings("aggregation.weighting={name: dynamic, horizon: 3}"),
        settings("aggregation.weighting={name: dynamic, horizon: 4}"),
    ]
    found = [result_settings(other, "multi_label")["aggregation"] for other in others]
    assert base not in found and all(found.count(one) == 1 for one in found)
    unused = settings("aggregation.fedadam.lr=0.5")
    assert result_settings(unused, "multi_label")["aggregation"] == base


def test_settings_of_an_aggregator_that_is_not_chosen_are_named():
    assert unused_aggregators(settings("aggregation.krum.byzantine=2")) == [
        "aggregation.name is mean, so aggregation.krum.byzantine has no effect"
    ]
    assert unused_aggregators(settings("aggregation.name=krum", "aggregation.krum.byzantine=0")) == []


@pytest.mark.parametrize("method", METHODS)
def test_each_methods_own_step_or_the_settings_decide(method):
    presets = {"scaffold": ["scaffold"], "xuesgcn": ["xuesgcn"], "fedcor": ["fedcor"]}.get(method, [])
    more = ["federation.clients_per_round=4"] if method == "fedcor" else []

    def load(*overrides):
        return load_settings(None, ["tiny", *presets], [f"method.name={method}", *more, *overrides])

    load("aggregation.name=mean")
    if method in (
        "fednova",
        "scaffold",
        "fedhybrid",
        "feddyn",
        "xuesgcn",
        "fedscrap",
        "fedamp",
        "local",
        "ifca",
        "cfl",
        "icfl",
        "cpfl",
    ):
        with pytest.raises(UserError, match=rf"cannot be combined with method\.name {method}"):
            load("aggregation.name=median")
    else:
        load("aggregation.name=median")
    if method == "fedhybrid":
        load("aggregation.name=median", "method.fedhybrid.version=prox")


def test_the_server_transforms_no_updates_whose_start_only_the_client_knows():
    chosen = ["method.name=fmman", "method.fmman.stage3_start=best_cluster"]
    clip = "transforms=[{name: clip_norm, max_norm: 1}]"
    with pytest.raises(UserError, match=r"best_cluster only a client knows .*server_transforms \(clip_norm\)"):
        load_settings(None, ["tiny"], [*chosen, f"aggregation.server_{clip}"])
    load_settings(None, ["tiny"], [*chosen, f"aggregation.client_{clip}"])
    load_settings(None, ["tiny"], ["method.name=fmman", f"aggregation.server_{clip}"])


def test_error_feedback_is_for_clients():
    kept = [{"name": "topk", "fraction": 0.1}]
    assert AggregationSettings(client_transforms=kept).transforms == ["topk"]
    assert AggregationSettings(server_transforms=[kept[0] | {"error_feedback": False}]).transforms == ["topk"]
    with pytest.raises(ValueError, match="set error_feedback to false"):
        AggregationSettings(server_transforms=kept)


def test_clients_weights_are_refused_where_nothing_would_use_them():
    dynamic = "aggregation.weighting={name: dynamic, horizon: 3}"
    for name in ("mean", "fedavgm", "ema", "geometric_median"):
        settings(dynamic, f"aggregation.name={name}")
    for name in ("median", "trimmed_mean", "krum", "multi_krum"):
        with pytest.raises(UserError, match=rf"has no effect with aggregation\.name {name}, which uses no weights"):
            settings("aggregation.weighting.name=uniform", f"aggregation.name={name}")


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (True, ["method.name=fedprox"]),
        (True, ["method.name=fedhybrid", "method.fedhybrid={version: prox}"]),
        (True, ["method.name=fedcor", "method.fedcor.aggregation=size", "federation.clients_per_round=4"]),
        (False, ["method.name=fedcor", "federation.clients_per_round=4"]),
        (False, ["method.name=fedhybrid"]),
        (False, ["method.name=fednova"]),
        (False, ["method.name=fmman"]),
    ],
)
def test_methods_with_weights_of_their_own_take_no_others(accepted, chosen):
    arguments = None, ["tiny"], [*chosen, "aggregation.weighting.name=uniform"]
    if accepted:
        assert load_settings(*arguments).aggregation.weighting.name == "uniform"
        return
    with pytest.raises(UserError, match=r"weighting uniform cannot be combined with method\.name"):
        load_settings(*arguments)


def test_dynamic_weights_need_labelled_images_at_the_clients(monkeypatch):
    monkeypatch.setattr(fedavg, "DATA", "unlabelled", raising=False)
    settings("aggregation.weighting.name=uniform")
    with pytest.raises(UserError, match="dynamic counts labelled training images"):
        settings("aggregation.weighting={name: dynamic, horizon: 3}")
