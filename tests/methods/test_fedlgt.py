"""FMMAN reduces to FedLGT (specification 1.9, acceptance test 12): the same global model, bit for bit."""

import pytest

from flows.engine.engines import make_engine
from flows.federation.federation import Federation
from flows.federation.progress import Quiet
from flows.methods import load_method
from tasks.core.federation_settings import FederationSettings

SMALL = {"backbone": {"width": 0.125}, "fmman": {"layers": 1, "heads": 2}}
NO_GRAPH = {"use_graph": False, "state_combine": "add_embed", "state_embeddings": "frozen"}
BAND = {"tau": 0.5, "eps": 0.05, "band": "closed", "known_share": 0.75}
LIKE_FEDLGT = BAND | {"corr_rule": "none", "mask_sources": "global", "lambda_contrast": 0.0, "lambda_prox": 0.0}
ONE_GROUP = {"clustering": "none", "final_agg": "size"}


@pytest.fixture
def digest(make_run, tiny_data):
    """``digest(name, method, method settings, network, objective, its settings)`` of the model after two rounds."""

    def run(name, method, options, network, objective, settings):
        context, model = make_run(name, objective, settings, {"lr": 0.01}, network)
        module, states = load_method(method), {}
        clients = dict.fromkeys(tiny_data.ids[:3], 11)
        for number in (1, 2):
            progress = Quiet()
            federation = FederationSettings(engine="local", workers=1)
            chosen = module.Settings(**options)
            engine = make_engine("local", 1)
            fed = Federation(context, federation, chosen, clients, engine, number, states, progress)
            model, states = module.run_round(fed, model), fed.record.client_states
        return model.digest

    return run


def fmman_digest(digest, name, reduction, network=None, method=None, **changes):
    network = SMALL | {"name": "fmman", "fmman": SMALL["fmman"] | NO_GRAPH | (network or {})}
    settings = LIKE_FEDLGT | {"loss_reduction": reduction} | changes
    return digest(name, "fmman", method or ONE_GROUP, network, "fmman", settings)


@pytest.mark.parametrize(("ours", "theirs"), [("mean", "mean"), ("paper_sum", "sum")])
def test_a12_fmman_without_its_parts_is_fedlgt(digest, ours, theirs):
    fedlgt = digest("theirs", "fedavg", {}, SMALL | {"name": "fedlgt"}, "fedlgt", BAND | {"loss_reduction": theirs})
    assert fmman_digest(digest, "ours", ours) == fedlgt


@pytest.mark.parametrize(
    "changes", [{"band": "open", "eps": 0.0}, {"mask_sources": "all"}, {"lambda_prox": 1e-3}, {"corr_rule": "topk"}]
)
def test_a12_each_part_put_back_makes_a_difference(digest, changes):
    settings = BAND | {"loss_reduction": "mean"}
    fedlgt = digest("theirs", "fedavg", {}, SMALL | {"name": "fedlgt"}, "fedlgt", settings)
    assert fmman_digest(digest, "ours", "mean", **changes) != fedlgt


def test_a12_learned_state_words_and_eq15_are_not_fedlgts(digest):
    settings = BAND | {"loss_reduction": "mean"}
    fedlgt = digest("theirs", "fedavg", {}, SMALL | {"name": "fedlgt"}, "fedlgt", settings)
    assert fmman_digest(digest, "ours", "mean", {"state_embeddings": "learned"}) != fedlgt
    assert fmman_digest(digest, "eq 15", "mean", method=ONE_GROUP | {"final_agg": "loss_size"}) != fedlgt
