"""CONTRIBUTING's example of a method, as it is printed there, with objectives that look at frozen models."""

import re
import sys
from pathlib import Path

import pytest
import torch

from flows.engine.engines import make_engine
from flows.federation.federation import Federation
from flows.federation.jobs import make_jobs
from flows.federation.progress import Quiet
from flows.methods import METHODS, load_method
from tasks.core.federation_settings import FederationSettings
from tasks.core.records import ModelRef
from tasks.data.clients import load_clients

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
NETWORK = {"name": "fmman", "backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2, "gae_residual": True}}


@pytest.fixture
def median(tmp_path, monkeypatch):
    """The example as a module of its own, listed among the methods."""
    (code,) = re.findall(r"^`flows/methods/median.py`:\n\n```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "median_example.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, "median", "median_example")
    yield load_method("median")
    sys.modules.pop("median_example", None)


def federation(context, tiny_data, method):
    indices = load_clients(tiny_data.clients).indices
    clients = {client: len(indices[client]) for client in tiny_data.ids[:2]}
    progress, options = Quiet(), FederationSettings(engine="local")
    return Federation(context, options, method, clients, make_engine("local", 1), 1, {}, progress)


@pytest.mark.parametrize("objective", ["fedlgt", "fmman"])
def test_the_example_works_with_objectives_that_look_at_a_frozen_model(make_run, tiny_data, median, objective):
    context, start = make_run(objective=objective, network=NETWORK | {"name": objective})
    fed = federation(context, tiny_data, median.Settings())
    model = median.run_round(fed, start)
    updates = fed.record.updates[1]
    assert len(updates) == 2 and not fed.record.dropped
    # eq 11's parts, which need the received global model
    assert objective == "fedlgt" or all({"contrast", "distance"} <= u.sums.keys() for u in updates)
    store = context.open_store()
    trained, combined = [store.get_state(u.model) for u in updates], store.get_state(model)
    for name in ("readout.weight", "transformer.layers.0.linear1.weight"):
        assert torch.allclose(combined[name], (trained[0][name] + trained[1][name]) / 2)  # the median of two

    given = federation(context, tiny_data, median.Settings())
    same = given.train(list(fed.clients), start, stage=1, name="with references", references=[start])
    assert [u.model for u in same] == [u.model for u in updates]  # found: they are the same jobs


def test_clients_that_start_apart_are_each_guided_by_their_own_start():
    starts = {name: ModelRef(name, f"digest of {name}", 10) for name in "ab"}
    jobs = make_jobs(["b", "a"], 1, 3, starts, None, {"a": 1, "b": 0}, "own_cluster", "start", {}, None, None)
    assert [(job.client, job.start, job.references, job.assigned_cluster) for job in jobs] == [
        (name, starts[name], ((starts[name], 1),), None) for name in "ab"
    ]
    plain = make_jobs(["a"], 1, 1, starts["a"], None, None, "none", "start", {}, None, None)
    assert plain[0].references == ()  # an objective without references is sent none
