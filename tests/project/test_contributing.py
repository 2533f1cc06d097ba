"""CONTRIBUTING's example of a method, as it is printed there, with every objective."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from flows.federation.jobs import make_jobs
from flows.methods import METHODS, load_method
from models.registry import NETWORKS
from tasks.client.objectives import OBJECTIVES
from tasks.client.objectives.label_mask.fmman import Settings as Objective
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.records import ModelRef, RoundState
from tests.support.rounds import make_federation, run_round

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
NETWORK = {"name": "fmman", "backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2, "gae_residual": True}}


@pytest.fixture
def median(tmp_path, monkeypatch):
    """The example's two modules in a folder of their own, the method listed among the others."""
    for path in ("tasks/server/median.py", "flows/methods/median.py"):
        (code,) = re.findall(rf"^`{path}`:\n\n```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
        module = path.split("/")[0] + "_median_example"
        (tmp_path / f"{module}.py").write_text(code.replace("tasks.server.median", "tasks_median_example"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, "median", "flows_median_example")
    yield load_method("median")
    for module in ("tasks_median_example", "flows_median_example"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_example_works_with_every_objective(make_run, tiny_data, median, objective):
    network = objective if objective in NETWORKS else "fmman"
    if objective not in NETWORKS[network].objectives:
        network = next(name for name, entry in NETWORKS.items() if objective in entry.objectives)
    context, start = make_run(objective=objective, network=NETWORK | {"name": network})
    clients = {client: tiny_data.sizes[client] for client in tiny_data.ids[:2]}
    fed = run_round("median", context, start, clients)
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
        assert torch.allclose(combined[name], (trained[0][name] + trained[1][name]) / 2), name  # the median of two

    given = make_federation(context, median.Settings(), clients)
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
