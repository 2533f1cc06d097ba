"""The presets of tables 5 and 6 change what their row says, and nothing else, whatever they are merged on top of."""

import pytest

from flows.settings.dotted import flat
from flows.settings.files import load_settings
from flows.settings.schema import as_values

WHO = {"model.name": "fmman", "objective.name": "fmman", "method.name": "fmman"}
ROWS = {
    "fmman_without_graph": {"model.fmman.use_graph": False},
    "fmman_without_mask": {"model.fmman.use_state": False, "objective.fmman.use_uncertainty": False},
    "fmman_without_uncertainty": {"objective.fmman.use_uncertainty": False},
    "fmman_without_contrastive": {"objective.fmman.lambda_contrast": 0.0, "objective.fmman.lambda_prox": 0.0},
    "fmman_without_clustering": {"method.fmman.clustering": "none"},
    "fmman_random_clusters": {"method.fmman.clustering": "random"},
    "fmman_study": {
        "model.fmman.gae_residual": True,
        "model.fmman.gae_scale": 20.0,
        "model.fmman.noise_scale": 0.0,
        "objective.fmman.known_share": 0.0,
    },
    "fedlgt": {"model.name": "fedlgt", "objective.name": "fedlgt", "method.name": "fedavg"},
    "fedlgt_ms": {"model.name": "fedlgt", "objective.name": "fedlgt"},
    "ctran": {"model.name": "ctran", "objective.name": "label_mask_training", "method.name": "fedavg"},
}


@pytest.mark.parametrize("below", ["demo", "paper", "tiny"])
@pytest.mark.parametrize("name", ROWS)
def test_ablation_presets_change_the_settings_of_their_name(name, below):
    before, after = (flat(as_values(load_settings(None, presets))) for presets in ([below], [below, name]))
    assert after == before | WHO | ROWS[name]


def test_the_settings_of_fedlgts_release():
    flags = ["ingest.path=x", "model.labels.clip_checkpoint=x"]
    for below, more in (("flair", []), ("voc2007", ["partition.clients=50"])):
        settings = load_settings(None, [below, "fedlgt_release"], flags + more)
        assert (settings.train.optimizer, settings.train.lr, settings.train.epochs) == ("adam", 1e-4, 5)
        assert (settings.federation.clients_per_round, settings.federation.rounds, settings.seed) == (50, 50, 514)
        assert settings.objective.fedlgt.eps == 0.02 and settings.ingest.image_size == 256


def test_paper_has_the_literal_and_robust_the_steadier_interpretations():
    paper, robust = (load_settings(None, names) for names in (["paper"], ["paper", "robust"]))
    assert as_values(load_settings(None, ["paper", "robust", "paper"])) == as_values(paper)
    assert not paper.model.fmman.gae_residual and robust.model.fmman.gae_residual
    assert (paper.train.lr, paper.train.epochs, paper.train.batch_size, paper.objective.fmman.eps) == (
        5e-4,
        10,
        16,
        0.015,
    )
    assert (paper.federation.rounds, paper.federation.clients_per_round, paper.method.fmman.clusters) == (50, 20, 3)
    objective = paper.objective.fmman
    assert (objective.eps, objective.lambda_contrast, objective.lambda_prox) == (0.015, 0.01, 1e-4)
