"""A run's identity depends on the code that can change its result, and on no more; so do the stages of dvc.yaml."""

import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from flows.methods import METHODS
from flows.run.data_code import ingest_code, ingest_modules, partition_code, partition_modules
from flows.run.fingerprint import SKIPPED, Parts, code_digest, result_modules
from models.registry import NETWORKS
from tasks.core.source_digest import closure, normalised, path_of
from tasks.core.yaml_text import parse_yaml
from tasks.data.formats import FORMATS
from tasks.data.formats.synthetic.registry import SETS
from tasks.data.ingest.settings import IngestSettings

ROOT = Path(__file__).parents[3]
FEDAVG, FEDPROX = Parts("fedavg", "bce", "resnet18"), Parts("fedprox", "bce", "resnet18")
MEDIAN = '''"""Coordinate-wise median."""
from tasks.core.round_state import RoundState

DESCRIPTION = "Median"


def run_round(fed, state: RoundState) -> RoundState:
    return state
'''


@pytest.fixture
def copy(tmp_path):
    """The sources in a folder, where they can be edited."""
    for floor in ("flows", "tasks", "models"):
        ignored = shutil.ignore_patterns("__pycache__", "*.yaml")
        shutil.copytree(ROOT / floor, tmp_path / "sources" / floor, ignore=ignored)
    return tmp_path / "sources"


def edit(root, module, old, new):
    path = path_of(module, root)
    text = path.read_text()
    assert old in text, f"{module} does not hold {old!r}"
    path.write_text(text.replace(old, new, 1))


def digests(root, name):
    """Digests of the same sources in another folder, as nothing may be remembered of the first one."""
    other = root.parent / name
    shutil.copytree(root, other)
    return [code_digest(parts, other) for parts in (FEDAVG, FEDPROX)]


def test_a_new_method_leaves_every_run_valid(copy):
    before = digests(copy, "before")
    (copy / "flows" / "methods" / "median.py").write_text(MEDIAN)
    edit(copy, "flows.methods", "METHODS = {", 'METHODS = {\n    "median": "flows.methods.median",')
    edit(copy, "tasks.registry", "] = {", '] = {\n    "median": Policy("tasks.server.median:median", "Median."),')
    assert digests(copy, "after") == before
    assert code_digest(Parts("median", "bce", "resnet18"), copy) not in before


def test_comments_docstrings_and_descriptions_leave_every_run_valid(copy):
    before = digests(copy, "before")
    edit(copy, "tasks.client.train", '"""A client', '"""Another first line: a client')
    with path_of("tasks.client.local_training", copy).open("a") as file:
        file.write("\n# a comment\n")
    edit(copy, "models.settings.model", 'description="', 'description="Other words. ')
    edit(copy, "flows.methods.fedavg", "DESCRIPTION = ", "DESCRIPTION = 'New: ' + ")
    assert digests(copy, "after") == before


def test_code_of_one_method_changes_its_runs_alone(copy):
    before = digests(copy, "before")
    with path_of("flows.methods.fedprox", copy).open("a") as file:
        file.write("\nSOMETHING = 1\n")
    after = digests(copy, "after")
    assert after[0] == before[0]
    assert after[1] != before[1]


@pytest.mark.parametrize(
    "module", ["tasks.client.train", "tasks.client.local_training", "tasks.server.aggregation", "tasks.core.randomness"]
)
def test_code_of_the_kernel_changes_every_run(copy, module):
    before = digests(copy, "before")
    with path_of(module, copy).open("a") as file:
        file.write("\nSOMETHING = 1\n")
    assert all(a != b for a, b in zip(digests(copy, "after"), before, strict=True))


def test_what_a_method_calls_by_name_is_part_of_its_runs():
    assert "tasks.client.regularisers.scaffold" in result_modules(Parts("scaffold", "bce", "resnet18"))
    assert "tasks.server.scaffold" in result_modules(Parts("scaffold", "bce", "resnet18"))
    assert "tasks.server.scaffold" not in result_modules(FEDAVG)
    assert {"tasks.client.objectives.asl", "tasks.server.xuesgcn"} <= set(
        result_modules(Parts("xuesgcn", "asl", "xuesgcn"))
    )


def test_the_chosen_aggregator_and_transforms_are_part_of_a_run():
    plain = result_modules(FEDAVG)
    assert "tasks.server.aggregators.mean" in plain and "tasks.server.aggregate" in plain
    assert not [m for m in plain if m in ("tasks.server.aggregators.fedadam", "tasks.core.update_transforms.clip_norm")]
    chosen = result_modules(replace(FEDAVG, aggregator="fedadam", transforms=("clip_norm",)))
    added = {"tasks.server.aggregators.fedadam", "tasks.server.aggregators.adaptive"}
    assert added | {"tasks.core.update_transforms.clip_norm"} <= set(chosen) - set(plain)
    assert _uncovered(chosen, "federate") == []


def test_a_module_that_a_call_names_is_part_of_a_run(copy):
    edit(copy, "flows.methods.fedavg", "DESCRIPTION = ", 'RULE = str("tasks.server.aggregators.krum")\nDESCRIPTION = ')
    assert "tasks.server.aggregators.krum" in result_modules(FEDAVG, copy)


def test_an_aggregator_changes_its_runs_alone(copy):
    median = replace(FEDAVG, aggregator="median")
    before = code_digest(FEDAVG, copy), code_digest(median, copy)
    other = copy.parent / "other"
    shutil.copytree(copy, other)
    edit(other, "tasks.server.aggregators", '    "mean":', '    "mode": "tasks.server.aggregators.mode",\n    "mean":')
    with path_of("tasks.server.aggregators.median", other).open("a") as file:
        file.write("\nSOMETHING = 1\n")
    after = code_digest(FEDAVG, other), code_digest(median, other)
    assert after[0] == before[0] and after[1] != before[1]


def test_type_only_imports_do_not_count():
    code = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nx = 1\n"
    assert normalised(code) == "from typing import TYPE_CHECKING\nx = 1"


def test_a_changed_axis_label_ingests_nothing(copy):
    settings = IngestSettings()
    before = ingest_code(settings, copy), partition_code(copy)
    other = copy.parent / "other"
    shutil.copytree(copy, other)
    for path in (other / "tasks" / "data" / "statistics").glob("*.py"):
        path.write_text(path.read_text() + "\nAXIS = 'other label'\n")
    assert (ingest_code(settings, other), partition_code(other)) == before
    assert not [dep for dep in _deps("ingest", "voc") if "statistics" in dep or "plotting" in dep]


def test_a_reader_changes_its_own_data_alone(copy):
    voc, synthetic = IngestSettings(source="voc"), IngestSettings()
    before = ingest_code(voc, copy), ingest_code(synthetic, copy)
    other = copy.parent / "other"
    shutil.copytree(copy, other)
    with path_of("tasks.data.formats.voc.reader", other).open("a") as file:
        file.write("\nSOMETHING = 1\n")
    after = ingest_code(voc, other), ingest_code(synthetic, other)
    assert after[0] != before[0]
    assert after[1] == before[1]


@cache
def _deps(stage, source="synthetic"):
    deps = parse_yaml((ROOT / "dvc.yaml").read_text())["stages"][stage]["deps"]
    return [re.sub(r"\$\{ingest\.source\}", source, dep) for dep in deps]


def _uncovered(modules, stage, source="synthetic"):
    """Modules that no dependency of the stage holds; packages' registries do not count."""
    files, deps = [path_of(module) for module in modules], _deps(stage, source)
    return [
        str(file.relative_to(ROOT))
        for file in files
        if file.name != "__init__.py" and not any(file.is_relative_to(ROOT / dep) for dep in deps)
    ]


@pytest.mark.parametrize("source", FORMATS)
def test_dvc_watches_the_code_that_decides_a_data_set(source):
    for synthetic_set in SETS if source == "synthetic" else [None]:
        assert _uncovered(ingest_modules(source, synthetic_set), "ingest", source) == []
    assert all((ROOT / dep).exists() for dep in _deps("ingest", source) if dep != "data/raw")
    assert [dep for dep in _deps("ingest", source) if "synthetic" in dep] == (
        ["tasks/data/formats/synthetic"] if source == "synthetic" else []
    )


def test_dvc_watches_the_code_that_decides_a_partition():
    assert _uncovered(partition_modules(), "partition") == []


@pytest.mark.parametrize("method", METHODS)
def test_dvc_watches_the_code_that_decides_a_result(method):
    network = "xuesgcn" if method == "xuesgcn" else "fmman"
    for objective in NETWORKS[network].objectives:
        assert _uncovered(result_modules(Parts(method, objective, network)), "federate") == []


def test_dvc_watches_the_code_that_decides_a_report():
    data = [f"tasks.data.{name}" for name in ("dataset", "decoding", "formats", "ingest", "partition", "run_data")]
    skipped = [name for name in SKIPPED if name not in ("tasks.report", "tasks.plotting", "tasks.data")]
    skipped = [*skipped, *data, "models", "tasks.core.network", "tasks.core.randomness", "tasks.core.round_summary"]
    assert _uncovered(closure(["tasks.report.sample_predictions"], skipped), "report") == []
