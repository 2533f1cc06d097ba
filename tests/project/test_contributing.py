"""CONTRIBUTING's examples of a method, with every objective, and of an aggregator, as they are printed there."""

import inspect
import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from flows.federation.jobs import make_jobs
from flows.methods import METHODS, load_method
from flows.methods.facts import RunFacts
from models.build import build_model
from models.registry import NETWORKS, ModelSpec
from models.settings.model import ModelSettings
from tasks.client.objectives import OBJECTIVES
from tasks.client.objectives.label_mask.fmman import Settings as Objective
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.records import ModelRef, RoundState
from tasks.core.train_settings import TrainSettings
from tasks.server.aggregate import aggregate
from tasks.server.aggregation_job import AggregationJob
from tasks.server.aggregators import AGGREGATORS, AggregatorSpec
from tests.support.contracts import Contract
from tests.support.rounds import make_federation, run_round
from tests.support.updates import make_context as make_updates_context
from tests.support.updates import put_start, put_update, random_state

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
TESTS = [block for block in BLOCKS if "def test_" in block]
SITE_BIAS = "tests.methods.examples.site_bias"
NETWORK = {"name": "fmman", "backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2, "gae_residual": True}}


def written(path, folder, monkeypatch):
    """Write an example's module, as it is printed, into a folder of its own; return the module's name there."""
    (code,) = re.findall(rf"`{path}`:\n\n```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    name = f"example_{Path(path).stem}"
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.fixture
def equal(tmp_path, monkeypatch):
    """The example's method, listed among the others."""
    monkeypatch.setitem(METHODS, "equal", written("flows/methods/equal.py", tmp_path, monkeypatch))
    return load_method("equal")


def test_the_example_of_an_aggregator_works_as_it_says(tmp_path, monkeypatch):
    spec = AggregatorSpec(written("tasks/server/aggregators/vote.py", tmp_path, monkeypatch), {"step": 0.5})
    monkeypatch.setitem(AGGREGATORS, spec.name, spec.name)
    context, begun = make_updates_context(tmp_path / "run"), random_state(9)
    updates = tuple(put_update(context, client, random_state(seed)) for seed, client in enumerate("abc"))
    made = aggregate(context, AggregationJob(spec, updates, put_start(context, begun)))
    state = context.open_store().get_state(made.models["global"])
    votes = sum((random_state(seed)["fc.bias"] - begun["fc.bias"]).sign() for seed in range(3))
    assert torch.allclose(state["fc.bias"], begun["fc.bias"] + 0.5 * votes.sign())
    mean = sum(random_state(seed)["bn.running_mean"] for seed in range(3)) / 3
    assert torch.allclose(state["bn.running_mean"], mean)


@pytest.mark.parametrize("code", TESTS, ids=lambda code: re.findall(r"def (test_\w+)", code)[0])
def test_the_examples_own_tests_pass(tmp_path, monkeypatch, equal, tiny_data, code):
    """The tests that CONTRIBUTING shows, with their imports, of the methods and the aggregator that it shows."""
    monkeypatch.setitem(METHODS, "site_bias", SITE_BIAS)
    monkeypatch.setitem(AGGREGATORS, "vote", written("tasks/server/aggregators/vote.py", tmp_path, monkeypatch))
    names: dict = {}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)  # noqa: S102 - our own page
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    given = {"tiny_data": tiny_data, "tmp_path": tmp_path / "run"}
    test(**{name: given[name] for name in inspect.signature(test).parameters})


def test_the_example_of_a_kept_part_is_the_file_that_is_tested():
    file = (ROOT / f"{SITE_BIAS.replace('.', '/')}.py").read_text()
    shown = [block[block.index("def ") :] for block in BLOCKS if "site_bias needs" in block or "keeps=(" in block]
    assert len(shown) == 2 and all(code in file for code in shown)
    (contract,) = (block for block in BLOCKS if '"site_bias": Contract(' in block)
    assert eval(f"{{{contract}}}", {"Contract": Contract})["site_bias"].not_averaged == ("readout.bias",)  # noqa: S307


def test_the_example_of_a_check_refuses_what_it_says():
    check = import_module(SITE_BIAS).check
    facts = RunFacts(None, ModelSettings(), TrainSettings(), clients=None, clients_per_round=None)
    check(facts)
    with pytest.raises(ValueError, match=r"clients_per_round null; found 2$"):
        check(replace(facts, clients_per_round=2))


def test_the_last_layer_is_named_readout_in_every_network():
    rows = torch.zeros(2, 512)
    for name in ("resnet18", *(name for name, entry in NETWORKS.items() if not entry.is_classifier)):
        with torch.device("meta"):
            model = build_model(ModelSettings(name=name), ModelSpec(("a", "b"), 64, rows, rows))
        assert {"readout.weight", "readout.bias"} <= model.state_dict().keys(), name


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_example_works_with_every_objective(make_run, tiny_data, equal, objective):
    network = objective if objective in NETWORKS else "fmman"
    if objective not in NETWORKS[network].objectives:
        network = next(name for name, entry in NETWORKS.items() if objective in entry.objectives)
    context, start = make_run(objective=objective, network=NETWORK | {"name": network})
    clients = {client: tiny_data.sizes[client] for client in tiny_data.ids[:2]}
    fed = run_round("equal", context, start, clients)
    updates = fed.record.updates[1]
    assert len(updates) == 2
    assert not fed.record.dropped
    # eq 11's parts, which need the received global model
    assert objective != "fmman" or all({"contrast", "distance"} <= u.sums.keys() for u in updates)
    store = context.open_store()
    trained, combined = [store.get_state(u.model) for u in updates], store.get_state(fed.record.model)
    weights = [name for name in combined if name.endswith("weight")]
    assert "readout.weight" in weights
    for name in weights:
        assert torch.allclose(combined[name], (trained[0][name] + trained[1][name]) / 2), name

    given = make_federation(context, equal.Settings(), clients)
    same = given.train(list(clients), Payload.of(start, references=[start]), stage=1, name="with references")
    assert [u.model for u in same] == [u.model for u in updates]  # found: they are the same jobs


@pytest.mark.parametrize("settings", [{}, {"use_uncertainty": False, "lambda_contrast": 0}])  # all; its cluster's own
def test_the_default_reference_is_each_clients_own_start(settings):
    starts = {name: ModelRef(name, f"digest of {name}", 10) for name in "ab"}
    guided = SimpleNamespace(context=SimpleNamespace(objective="fmman", objective_settings=Objective(**settings)))
    payloads = {name: Payload.of(start) for name, start in starts.items()}
    jobs = make_jobs(guided, RoundState(), ["b", "a"], 1, 3, payloads, LocalWork())
    sent = [(job.client, job.payload) for job in jobs]
    assert [
        (client, p.start.ref, [(r.ref, r.copies) for r in p.references], p.own_reference) for client, p in sent
    ] == [(name, starts[name], [(starts[name], 1)], None) for name in "ab"]
    plain = SimpleNamespace(context=SimpleNamespace(objective="bce", objective_settings=None))
    (job,) = make_jobs(plain, RoundState(), ["a"], 1, 1, Payload.of(starts["a"]), LocalWork())
    assert job.payload.references == ()  # an objective without references is sent none
