"""Any method with any network that fits: every pair trains, and a pair that does not fit is refused beforehand."""

import math
from importlib import import_module

import pytest

from flows.federate import federate
from flows.methods import METHODS
from flows.run.inputs import DataPaths
from flows.settings.files import load_settings
from models.errors import UserError
from models.registry import NETWORKS

NARROW = (
    "ingest.image_size=32",
    "federation.engine=local",
    "federation.rounds=1",
    "federation.clients_per_round=2",
    "tracking.enabled=false",
    "report.images=0",
    "train.epochs=1",
    "model.timm.width=0.34",
    "model.timm.depth=0.1",
    "model.xuesgcn.attention_width=8",
    "model.xuesgcn.graph_width=8",
    "method.fedcor.warmup=2",
)
SGD = ("train.optimizer=sgd", "train.grad_clip=null", "train.lr=0.01")
NEED_MORE, ALL_CLIENTS = ("cfl", "fedscrap"), ("federation.clients_per_round=null",)
PAIRS = [("fedavg", name) for name in NETWORKS if name != "xuesgcn"]
PAIRS += [(name, "resnet18") for name in METHODS if name not in ("fedavg", "xuesgcn")]
PAIRS += [("xuesgcn", "xuesgcn"), ("fmman", "vit_tiny"), ("fmman", "ctran"), ("moon", "fmman"), ("scaffold", "fedlgt")]


def settings_of(method, network):
    more = [f"method.name={method}", f"model.name={network}"]
    more += ["model.timm.patch=8"] if network in ("vit_tiny", "mlp_mixer", "convmixer") else []
    more += SGD if method == "scaffold" else ()
    more += ALL_CLIENTS if method in NEED_MORE else ()
    if method == "fmman" and NETWORKS[network].cluster_prefix is None:
        more.append("method.fmman.cluster_on=readout")
    return load_settings(None, ["tiny"], [*NARROW, *more])


@pytest.mark.slow
@pytest.mark.parametrize(("method", "network"), PAIRS)
def test_every_combination_trains(method, network, tiny_data, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCENE_RUNS", str(tmp_path))
    summary = federate(settings_of(method, network), DataPaths(tiny_data.dataset, tiny_data.clients))
    record = summary.records[-1]
    assert record.dropped == [] and len(record.participants) == (4 if method in NEED_MORE else 2)
    assert math.isfinite(summary.metrics["macro_ap"]) and math.isfinite(summary.metrics["loss"])


@pytest.mark.parametrize(("method", "network"), [("fedavg", "xuesgcn"), ("xuesgcn", "fmman")])
def test_method_and_network_xuesgcn_require_each_other(method, network):
    with pytest.raises(UserError, match="do not fit: a network whose clients have tensors of their own"):
        settings_of(method, network)


@pytest.mark.parametrize(
    ("loss", "network"), [("fmman", "resnet18"), ("label_mask_training", "vit_tiny"), ("asl", "fedlgt")]
)
def test_an_objective_that_does_not_fit_the_network_is_refused(loss, network):
    with pytest.raises(UserError, match=f"objective.name {loss} does not fit model.name {network}"):
        load_settings(None, ["tiny"], [f"objective.name={loss}", f"model.name={network}"])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_registry_knows_which_networks_declare_personal_tensors(name):
    module = import_module(NETWORKS[name].module)
    declared = [getattr(part, "STATE_KINDS", {}) for part in vars(module).values() if isinstance(part, type)]
    assert NETWORKS[name].personal == any(spec.personal for kinds in declared for spec in kinds.values())
