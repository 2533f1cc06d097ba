"""Every setting of FMMAN, FedLGT and label-mask training changes what comes out; a setting without a case fails.

Compared are digests of the trained weights, bit for bit. Of a setting that names its values all are tried, and no two
may give the same weights.
"""

import itertools
from typing import Literal, get_args, get_origin

import pytest

from flows.methods import fmman as method
from models.settings.model import FmmanSettings
from tasks.client.objectives.label_mask import fedlgt, fmman, label_mask_training
from tasks.client.train import train_client
from tests.support.jobs import train_job
from tests.support.rounds import make_context, partitioned, run_round

UNSURE = 2  # labels that the first reference gives exactly 0.5

# Field -> (what must be set beside it, the values to tell apart: for named values all of them unless given here)
Cases = dict[str, tuple[dict, list]]
NETWORK: Cases = {
    "use_graph": ({}, [True, False]),
    "use_state": ({}, [True, False]),
    "state_combine": ({}, []),
    "state_embeddings": ({"state_combine": "add_embed"}, []),
    "edge_act": ({}, []),
    "adj_norm": ({}, []),
    "gae_residual": ({}, [False, True]),
    "gae_scale": ({}, [1.0, 4.0]),
    "noise_scale": ({}, [1.0, 0.25, 0.0]),
    "layers": ({}, [1, 2]),
    "heads": ({}, [2, 4]),
    "ff_ratio": ({}, [1.0, 2.0]),
    "dropout": ({}, [0.0, 0.1]),
    "positions": ({}, []),
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
    "temperature": ({"contrast_mode": "own_cluster"}, [0.5, 2.0]),
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


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def trained(tiny_data, tmp_path_factory):
    """``trained("objective.fmman", options)``: digest of a client's weights under two unlike references.

    Options that come to the same settings, such as a value that is the default, are trained once.
    """
    done = {}

    def train(section, options):
        objective = "fmman" if section == "model.fmman" else section.removeprefix("objective.")
        label_aware = {"layers": 1, "heads": 2} | (options if section == "model.fmman" else {})
        network = {"name": "fedlgt" if objective == "fedlgt" else "fmman", "backbone": {"width": 0.125}}
        own = SECTIONS[f"objective.{objective}"][0](**({} if section == "model.fmman" else options))
        key = (objective, FmmanSettings(**label_aware).model_dump_json(), own.model_dump_json())
        if key not in done:
            store = tmp_path_factory.mktemp("trained")
            settings = {"settings": own.model_dump(), "network": network | {"fmman": label_aware}}
            context, start = make_context(tiny_data, store, objective=objective, train={"batch_size": 6}, **settings)
            job = train_job(tiny_data.ids[0], 1, 3, start, unlike(context.open_store(), start), own=0)
            done[key] = train_client(context, job).model.digest
        return done[key]

    return train


def unlike(store, start):
    """Two references: one that is unsure of some labels, one whose tensors are all moved."""
    state = store.get_state(start)
    flat = {key: value.clone() for key, value in state.items()}
    flat["readout.weight"][:UNSURE] = 0.0
    flat["readout.bias"][:UNSURE] = 0.0
    moved = {key: value + 0.02 if value.is_floating_point() else value for key, value in state.items()}
    return [store.put_state(f"reference {n}.safetensors", one) for n, one in enumerate((flat, moved))]


@pytest.fixture(scope="module")
def one_round(tiny_data, tmp_path_factory):
    """``one_round(options)``: digest of the global model after one cycle of FMMAN with a plain, quick classifier.

    All cycles have one store, so a training that two of them share, such as stage 1, is done once.
    """
    data = partitioned(tiny_data.dataset, tmp_path_factory.mktemp("unequal") / "clients", scheme="dirichlet", alpha=0.5)
    assert len(set(data.sizes.values())) > 1, "with equal sizes `loss` and `loss_size` are the same rule"
    # a seed with which clusters differ between layers
    context, start = make_context(data, tmp_path_factory.mktemp("rounds"), train={"lr": 0.01}, seed=2)

    def play(options):
        own = {"clusters": 2, "cluster_on": "backbone.layer4."} | options
        return run_round("fmman", context, start, data.sizes, own=own).record.model.digest

    return play
