"""Table files: their content, how their settings are merged, and what is refused."""

import numpy as np
import pytest
from typer.main import get_command

from flows.cli.main import app
from flows.papers.fidelity.claims import FMMAN_CLAIMS
from flows.papers.fidelity.run import TABLES as FIDELITY_TABLES
from flows.papers.replicate.tables import data_folder, load_table, planned_runs, shipped
from flows.settings.files import load_settings
from models.errors import UserError
from models.label_aware.label_embeddings import embed_labels
from models.settings.model import LabelSettings
from tasks.data.formats.synthetic.registry import synthetic_set
from tests.support.commands import commands
from tests.support.tables import FOLDER, TABLE, written

TABLES = [f"fmman-table{number}" for number in range(1, 7)]
CLAIMS = [f"fmman-claims-{data}" for data in ("cabinet", "defects")]


def test_the_six_tables_of_the_paper_are_shipped():
    others = ["classics", "dynamic-weights", "fedscrap", "fmman-trial", "personal-photographs"]
    assert shipped() == sorted([*others, *TABLES, *CLAIMS])
    counts = [sum(row in table.paper for row in table.rows) for table in map(load_table, TABLES)]
    assert counts == [14, 12, 14, 13, 6, 3]
    assert load_table("fmman-table1").paper["FMMAN"] == (62.15, 55.58, 88.94, 86.71)
    assert load_table("fmman-table2").paper["FedLGT"] == (89.72, 84.25, 91.79, 88.43)
    assert load_table("fmman-table4").paper["AvgFL-MLP-Mixer"] == (62.76, 59.04, 70.17, 69.93)
    # Tables 3, 5 and 6 print the same two rows
    printed = [load_table(f"fmman-table{number}").paper for number in (3, 5, 6)]
    assert all(paper[row] == printed[0][row] for paper in printed for row in ("FMMAN", "FedLGT"))


@pytest.mark.parametrize("scale", ["small", "full"])
@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_valid_settings(name, scale, tmp_path):
    found = planned_runs(load_table(name), scale, tmp_path)
    assert {job.row: str(job.error) for job in found if job.error} == {}
    assert all(job.settings.ingest == found[0].settings.ingest for job in found)
    assert all(job.settings.partition == found[0].settings.partition for job in found)
    for job in found:
        assert job.settings.federation.rounds == (job.equal_epoch_rounds or job.rounds)
        assert job.settings.evaluation.every == job.rounds
        assert (job.equal_epoch_rounds is None) == (job.settings.method.name == "fmman" and job.row != "FMMAN_without")


def test_the_trial_gives_every_row_the_same_start_steps_and_seeds():
    table = load_table("fmman-trial")
    with pytest.raises(UserError, match=r"model\.backbone\.weights=VALUE[\s\S]*pretrained"):
        planned_runs(table, "small", None)
    found = planned_runs(table, "small", None, ["model.backbone.weights=start.safetensors"])
    assert {job.row: str(job.error) for job in found if job.error} == {}
    rows = {job.row: job for job in found}
    assert all(str(job.settings.model.backbone.weights) == "start.safetensors" for job in found)
    assert len({job.settings.train.model_dump_json() for job in found}) == 1
    assert {job.seed for job in found if job.row == "FMMAN"} == set(range(1, 12))
    assert {name for name, job in rows.items() if job.equal_epoch_rounds} == {
        "FMMAN_study_without_clustering", "FedLGT", "FedLGT_masks_all", "FL-C_Tran", "AvgFL-ResNet-18",
    }  # fmt: skip
    assert {rows[name].settings.model.fmman.use_graph for name in ("FMMAN_study", "FMMAN_study_without_graph")} == {
        True,
        False,
    }
    best = rows["FMMAN_study"].settings
    assert (best.model.fmman.gae_scale, best.model.fmman.noise_scale, best.objective.fmman.known_share) == (20, 0, 0)


def test_rows_that_tables_share_are_the_same_runs():
    names = [*TABLES[2:], *CLAIMS]
    found = {n: {job.row: job.settings for job in planned_runs(load_table(n), "small", None, seeds=[7])} for n in names}
    for row in ("FMMAN", "FedLGT"):
        assert found["fmman-table3"][row] == found["fmman-table5"][row] == found["fmman-table6"][row]
    assert found["fmman-table3"]["FMMAN"] == found["fmman-claims-defects"]["FMMAN"] != found["fmman-table4"]["FMMAN"]


def test_rows_run_the_method_and_network_of_their_name(tmp_path):
    table1 = {job.row: job.settings for job in planned_runs(load_table("fmman-table1"), "full", tmp_path)}
    said = {row: (s.method.name, s.model.name, s.objective_name) for row, s in table1.items()}
    assert said["AvgFL-PoolFormer"] == ("fedavg", "poolformer", "bce")
    assert said["MOON-ResNet-50"] == ("moon", "resnet50", "bce")
    assert said["FL-C_Tran"] == ("fedavg", "ctran", "label_mask_training")
    assert said["FedLGT"] == ("fedavg", "fedlgt", "fedlgt")
    assert said["FedHybrid"] == ("fedhybrid", "fedlgt", "label_mask_training") and said["FedCor"] == (
        "fedcor",
        "fedlgt",
        "label_mask_training",
    )
    assert said["ViT-Tiny"] == ("fedavg", "vit_tiny", "bce") and said["FMMAN"] == ("fmman", "fmman", "fmman")
    # The paper's settings apply to every row, and clients without state keep no dual variables
    assert {(s.train.epochs, s.federation.clients_per_round, s.train.lr) for s in table1.values()} == {(10, 20, 5e-4)}
    assert table1["FedHybrid"].method.fedhybrid.version == "prox"
    assert table1["MOON-ResNet-50"].model.classifier.projection == 256


def test_later_layers_override_earlier_ones(tmp_path):
    data = {"synthetic": {"small": {"title": "x", "settings": {"train": {"lr": 0.02, "shift": 1}}}}}
    own = {"settings": {"train": {"lr": 0.03, "epochs": 3}}, "overrides": {"small": {"train": {"lr": 0.04}}}}
    table = load_table(written(tmp_path, datasets=data, rows={"A": own, "B": {}}, paper={}))
    first, second = (job.settings.train for job in planned_runs(table, "small", None))
    assert (first.lr, first.epochs, first.shift) == (0.04, 3, 1)
    assert (second.lr, second.epochs, second.shift) == (0.02, 1, 1)
    found = planned_runs(table, "small", None, ["train.lr=0.05", "federation.rounds=4"], [1, 2])
    assert {job.settings.train.lr for job in found} == {0.05}
    assert [(job.seed, job.settings.seed, job.rounds, job.settings.federation.rounds) for job in found[:2]] == [
        (1, 1, 4, 8),
        (2, 2, 4, 8),
    ]


def test_a_row_with_invalid_settings_has_its_error(tmp_path):
    rows = TABLE["rows"] | {"Bad": {"presets": ["no-such-preset"]}}
    found = {job.row: job for job in planned_runs(load_table(written(tmp_path, rows=rows)), "small", None)}
    assert "no such preset" in str(found["Bad"].error) and found["FMMAN"].error is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows": {"X": None}}, "rows without settings"),
        ({"rows": ["FMMAN"]}, "the rows of a table cannot be read"),
        ({"paper": {"Nobody": [1, 2, 3, 4]}}, "Nobody"),
        ({"paper": {"FMMAN": [1, 2, 3]}}, "paper.FMMAN"),
        ({"data": "elsewhere"}, "elsewhere"),
        ({"titel": "x"}, "titel"),
    ],
)
def test_a_faulty_table_is_named(tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        load_table(written(tmp_path, **changes))


def test_missing_images_are_named_with_where_to_get_them(tmp_path):
    table = load_table("fmman-table1")
    with pytest.raises(UserError, match=r"ppe-site-192[\s\S]*Roboflow"):
        data_folder(table, "small", None)
    with pytest.raises(UserError, match="VOCtrainval"):
        data_folder(load_table("fmman-table2"), "full", tmp_path)
    (tmp_path / "ppe-site-192").mkdir()
    assert data_folder(table, "small", tmp_path) == tmp_path / "ppe-site-192"
    assert data_folder(load_table("fmman-table3"), "small", None) is None
    with pytest.raises(UserError, match="no such scale"):
        table.scale("huge")
    with pytest.raises(UserError, match="--seeds"):
        planned_runs(load_table("fmman-table3"), "small", None, ["seed=3"])


@pytest.mark.parametrize("name", ["classics", "fmman-trial", *TABLES])
def test_the_commands_in_head_comments_parse(name):
    found = [words for words in commands(FOLDER / f"{name}.yaml") if words[1] == "replicate"]
    assert found
    for words in found:
        get_command(app).commands["replicate"].make_context("replicate", words[2:])


def test_the_claims_of_the_fidelity_report_name_rows_of_its_tables():
    named: set[str] = set()
    for name in FIDELITY_TABLES:
        table = load_table(name)
        named |= set(table.rows)
        assert len(table.scale("small").seeds) >= 3
        assert {"FMMAN", "FedLGT", "FL-C_Tran", "AvgFL-ResNet-18", "FMMAN_without"} <= set(table.rows)
    assert {row for claim in FMMAN_CLAIMS for row in (claim.winner, claim.loser)} <= named


@pytest.mark.parametrize("name", [*TABLES, *CLAIMS])
def test_labels_that_are_codes_have_names_in_words(name, tmp_path):
    """Label embeddings are made of words; those of codes have nothing to do with which labels occur together."""
    for scale in load_table(name).scales:
        settings = planned_runs(load_table(name), scale, tmp_path)[0].settings
        classes, words = settings.ingest.classes, settings.model.labels.prompt_names
        if settings.ingest.source == "synthetic":
            classes = synthetic_set(settings.ingest.synthetic.set).classes
        codes = [label for label in classes or () if "_" in label or label in ("bjdsyc", "xmbhyc", "wcaqm", "gbps")]
        assert set(codes) <= set(words), (name, scale)


def test_the_label_embeddings_of_the_synthetic_defects_follow_their_ground_truth_co_occurrence():
    settings = planned_runs(load_table("fmman-table3"), "small", None)[0].settings
    defects = synthetic_set("defects")
    assert (
        settings.model.labels.prompt_names
        == defects.prompts
        == load_settings(None, ["tiny", "defects"]).model.labels.prompt_names
    )
    truth, pairs = defects.strength_matrix(settings.ingest.synthetic, "site-1"), np.triu_indices(17, 1)

    def follows(labels):
        rows = embed_labels(labels, defects.classes, 64)
        return np.corrcoef((rows @ rows.T).numpy()[pairs], truth[pairs])[0, 1]

    codes = follows(LabelSettings())
    assert follows(settings.model.labels) > 0.3 > 0.2 > codes
