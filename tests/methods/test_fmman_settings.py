"""Every setting of FMMAN, FedLGT and label-mask training changes what comes out; a setting without a case fails.

Compared are digests of the trained weights, bit for bit. Of a setting that names its values all are tried, and no two
may give the same weights.
"""

import itertools
from typing import Literal, get_args, get_origin

import pytest

from flows.engine.engines import make_engine
from flows.federation.federation import Federation
from flows.federation.progress import Quiet
from flows.methods import fmman as method
from models.settings import FmmanSettings
from tasks.client.objectives.label_mask import fedlgt, fmman, label_mask_training
from tasks.client.train import TrainJob, train_client
from tasks.core.federation_settings import FederationSettings

UNSURE = 2  # labels that the first reference gives exactly 0.5

# Field -> (what must be set beside it, the values to tell apart: for named values all of them unless given here)
Cases = dict[str, tuple[dict, list]]
NETWORK: Cases = {
    "use_graph": ({}, [True, False]),
    "use_state": ({}, [True, False]),
    "state_combine": ({}, []),
    "state_words": ({"state_combine": "add_embed"}, []),
    "edge_act": ({}, []),
    "adj_norm": ({}, []),
    "gae_residual": ({}, [False, True]),
    "gae_scale": ({}, [1.0, 4.0]),
    "layers": ({}, [1, 2]),
    "heads": ({}, [2, 4]),
    "ff_ratio": ({}, [1.0, 2.0]),
    "dropout": ({}, [0.0, 0.1]),
    "z": ({}, []),  # acts through the contrast
}
FMMAN: Cases = {
    "tau": ({}, [0.5, 0.2]),
    "eps": ({}, [0.015, 0.3]),
    "band": ({"eps": 0.0}, []),
    "use_uncertainty": ({}, [True, False]),
    "state_init": ({}, []),
    "known_share": ({}, [0.75, 0.25]),
    "corr_rule": ({"corr_k": 5}, []),  # with 2, topk and zscore relate the unsure labels to the same ones
    "corr_k": ({"corr_rule": "topk"}, [2, 5]),
    "corr_rho": ({"corr_rule": "cooccur"}, [1.0, 0.01]),
    "mask_sources": ({}, []),
    "ae_target": ({}, []),
    "ae_adj_target": ({}, []),
    "w_rec": ({}, [1.0, 0.5]),
    "w_con": ({}, [1.0, 0.5]),
    "w_kl": ({}, [0.0, 0.01]),
    "loss_reduction": ({}, []),
    "contrast_mode": ({}, []),
    "temperature": ({"contrast_mode": "own_group"}, [0.5, 2.0]),
    "prox": ({}, []),
    "lambda_contrast": ({}, [0.01, 0.1]),
    "lambda_prox": ({}, [1e-4, 1e-2]),
}
LMT: Cases = {"known_share": ({}, [0.75, 0.25]), "loss_reduction": ({}, [])}
FEDLGT: Cases = LMT | {
    "tau": ({}, [0.5, 0.2]),
    "eps": ({}, [0.02, 0.3]),
    "band": ({"eps": 0.0}, []),
    "reference_scope": ({"eps": 0.3}, []),
}
METHOD: Cases = {
    "clusters": ({}, [2, 3]),
    "clustering": ({}, []),
    "cluster_on": ({}, ["readout.bias", "backbone.layer4."]),
    "stage3_start": ({}, []),
    "final_agg": ({}, []),
    "stage1_rounds": ({}, [1, 2]),
    "stage3_rounds": ({}, [1, 2]),
}
SECTIONS = {
    "model.fmman": (FmmanSettings, NETWORK),
    "objective.fmman": (fmman.Settings, FMMAN),
    "objective.label_mask_training": (label_mask_training.Settings, LMT),
    "objective.fedlgt": (fedlgt.Settings, FEDLGT),
    "method.fmman": (method.Settings, METHOD),
}


def named_values(section: type, field: str) -> list:
    annotation = section.model_fields[field].annotation
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def all_cases() -> list:
    cases = []
    for name, (section, fields) in SECTIONS.items():
        for field, (beside, given) in fields.items():
            values = given or named_values(section, field)
            cases.append(pytest.param(name, field, beside, values, id=f"{name}.{field}"))
    return cases


@pytest.mark.parametrize("name", SECTIONS)
def test_every_setting_has_a_case(name):
    section, fields = SECTIONS[name]
    assert set(section.model_fields) == set(fields)


@pytest.mark.parametrize(("name", "field", "beside", "values"), all_cases())
def test_every_setting_changes_the_result(name, field, beside, values, trained, one_round):
    named = named_values(SECTIONS[name][0], field)
    assert len(values) >= 2 and (not named or set(values) == set(named))
    digests = {}
    for value in values:
        options = beside | {field: value}
        digests[str(value)] = one_round(options) if name == "method.fmman" else trained(name, options)
    for first, second in itertools.combinations(digests, 2):
        assert digests[first] != digests[second], f"{name}.{field}: {first} and {second} give the same weights"


@pytest.fixture
def trained(make_run, tiny_data):
    """``trained("objective.fmman", options)``: digest of a client's weights under two unlike references."""
    runs = itertools.count()

    def train(section, options):
        base = {"layers": 1, "heads": 2} | (options if section == "model.fmman" else {})
        objective = "fmman" if section == "model.fmman" else section.removeprefix("objective.")
        network = {"name": "fedlgt" if objective == "fedlgt" else "fmman", "backbone": {"width": 0.125}, "fmman": base}
        settings = {} if section == "model.fmman" else options
        context, start = make_run(f"run {next(runs)}", objective, settings, {"batch_size": 6}, network)
        store = context.open_store()
        state = store.get_state(start)
        flat = {key: value.clone() for key, value in state.items()}
        flat["readout.weight"][:UNSURE] = 0.0
        flat["readout.bias"][:UNSURE] = 0.0
        moved = {key: value + 0.02 if value.is_floating_point() else value for key, value in state.items()}
        references = [store.put_state(f"reference {n}.safetensors", one) for n, one in enumerate((flat, moved))]
        job = TrainJob(tiny_data.ids[0], 1, 3, start, tuple((ref, 1) for ref in references), own=0)
        return train_client(context, job).model.digest

    return train


@pytest.fixture(scope="module")
def unequal(tiny_data, tmp_path_factory):
    """A partition into four clients of different sizes: (folder, id -> images)."""
    from tasks.data.clients import load_clients
    from tasks.data.partition import PartitionSettings, partition

    folder = tmp_path_factory.mktemp("unequal") / "clients"
    settings = PartitionSettings(scheme="dirichlet", clients=4, min_size=4, alpha=0.5)
    partition(tiny_data.dataset, settings, folder, seed=1)
    clients = load_clients(folder)
    sizes = {client: len(clients.indices[client]) for client in clients.ids}
    assert len(set(sizes.values())) > 1, "with equal sizes `loss` and `loss_size` are the same rule"
    return folder, sizes


@pytest.fixture
def one_round(make_run, unequal):
    """``one_round(options)``: digest of the global model after one cycle of FMMAN with a plain, quick classifier."""
    runs = itertools.count()

    def play(options):
        network = {"name": "resnet18", "backbone": {"width": 0.125}}
        context, start = make_run(f"round {next(runs)}", "bce", {}, {"lr": 0.01}, network, clients=str(unequal[0]))
        settings = method.Settings(**({"clusters": 2, "cluster_on": "backbone.layer4."} | options))
        clients, engine = unequal[1], make_engine("local", 1)
        progress = Quiet()
        federation = FederationSettings(engine="local", workers=1)
        fed = Federation(context, federation, settings, clients, engine, 1, {}, progress)
        return method.run_round(fed, start).digest

    return play
