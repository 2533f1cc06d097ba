"""FMMAN reduces to FedLGT (docs/algorithms/fmman.md): the same global model, bit for bit."""

import pytest

from tests.support.rounds import LABEL_AWARE, make_context, run_rounds

pytestmark = pytest.mark.slow

NO_GRAPH = {"use_graph": False, "state_combine": "add_embed", "state_embeddings": "frozen"}
BAND = {"tau": 0.5, "eps": 0.05, "band": "closed", "known_share": 0.75}
LIKE_FEDLGT = BAND | {"corr_rule": "none", "mask_sources": "global", "lambda_contrast": 0.0, "lambda_prox": 0.0}
ONE_GROUP = {"clustering": "none", "final_agg": "size"}


@pytest.fixture(scope="module")
def digest(tiny_data, tmp_path_factory):
    """``digest(method, method settings, network, objective, its settings)`` of the model after two rounds."""
    clients = {client: tiny_data.sizes[client] for client in tiny_data.ids[:3]}
    done = {}

    def run(method, own, network, objective, settings):
        key = str((method, own, network, objective, settings))
        if key not in done:
            given = {"objective": objective, "settings": settings, "train": {"lr": 0.01}, "network": network}
            context, start = make_context(tiny_data, tmp_path_factory.mktemp("run"), **given)
            done[key] = run_rounds(2, method, context, start, clients, own=own)[-1].record.model.digest
        return done[key]

    return run


def fmman_digest(digest, reduction, network=None, method=None, **changes):
    network = LABEL_AWARE | {"name": "fmman", "fmman": LABEL_AWARE["fmman"] | NO_GRAPH | (network or {})}
    settings = LIKE_FEDLGT | {"loss_reduction": reduction} | changes
    return digest("fmman", method or ONE_GROUP, network, "fmman", settings)


@pytest.mark.parametrize(("ours", "theirs"), [("mean", "mean"), ("paper_sum", "sum")])
def test_fmman_without_its_parts_is_fedlgt_bit_for_bit(digest, ours, theirs):
    fedlgt = digest("fedavg", {}, LABEL_AWARE | {"name": "fedlgt"}, "fedlgt", BAND | {"loss_reduction": theirs})
    assert fmman_digest(digest, ours) == fedlgt


@pytest.mark.parametrize(
    "changes", [{"band": "open", "eps": 0.0}, {"mask_sources": "all"}, {"lambda_prox": 1e-3}, {"corr_rule": "topk"}]
)
def test_each_part_put_back_makes_a_difference(digest, changes):
    settings = BAND | {"loss_reduction": "mean"}
    fedlgt = digest("fedavg", {}, LABEL_AWARE | {"name": "fedlgt"}, "fedlgt", settings)
    assert fmman_digest(digest, "mean", **changes) != fedlgt


def test_learned_state_embeddings_and_eq15_are_not_fedlgts(digest):
    settings = BAND | {"loss_reduction": "mean"}
    fedlgt = digest("fedavg", {}, LABEL_AWARE | {"name": "fedlgt"}, "fedlgt", settings)
    assert fmman_digest(digest, "mean", {"state_embeddings": "learned"}) != fedlgt
    assert fmman_digest(digest, "mean", method=ONE_GROUP | {"final_agg": "loss_size"}) != fedlgt
