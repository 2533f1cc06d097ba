"""The documentation's commands parse, its links lead somewhere."""

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from flows.cli.main import app
from flows.methods import METHODS
from flows.settings.files import load_settings
from tasks.data.formats import FORMATS
from tasks.data.formats.synthetic.registry import SETS
from tasks.data.partition import PartitionSettings
from tasks.server.aggregators import AGGREGATORS
from tests.support.commands import commands

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
PRESETS = sorted((ROOT / "flows" / "settings" / "presets").glob("*.yaml"))


@pytest.mark.parametrize("page", PAGES + PRESETS, ids=lambda page: page.name)
def test_every_documented_command_parses(page):
    written: dict[str, tuple[list[str], list[str]]] = {}  # settings files that earlier commands of the page write
    for words in commands(page):
        if "..." in words or "METHOD" in words:
            continue
        command, rest = get_command(app), words[1:]
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        options = command.make_context(words[0], list(rest)).params
        sets = [text for text in options.get("set_") or () if text != "method.name=median"]  # CONTRIBUTING's example
        if command.name == "pretrain":  # which sets the method itself
            sets.append("method.name=fedavg")
        params, presets = options.get("params"), list(options.get("preset") or ())
        if params in written:
            params, presets, sets = None, [*written[params][0], *presets], [*written[params][1], *sets]
        load_settings(Path(params) if params else None, presets, sets)
        if command.name == "settings" and options.get("out"):
            written[str(options["out"])] = presets, sets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_has_a_target(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_counts_in_the_readme_are_those_of_the_registries():
    text = (ROOT / "README.md").read_text()
    files = [name for name in FORMATS if name not in ("synthetic", "images")]
    schemes = get_args(PartitionSettings.model_fields["scheme"].annotation)
    words = {5: "five", 8: "eight"}
    assert f"{words[len(files)]} file formats, {words[len(SETS)]} synthetic data sets" in text
    assert f"{len(schemes)} partition schemes" in text
    (methods,) = re.findall(r"^\| methods \| (.*) \|$", text, re.MULTILINE)
    different = {name.casefold() for name in methods.split(", ")} ^ set(METHODS)
    assert not different, f"the row `methods` of README.md lists every method of METHODS; add or remove: {different}"


def test_the_page_of_methods_has_every_method_and_aggregator():
    rows = [line for line in (ROOT / "docs" / "methods.md").read_text().splitlines() if line.startswith("|")]
    for names, table in ((METHODS, "Methods"), (AGGREGATORS, "The server's step")):
        lacking = [name for name in names if not any(f"`{name}`" in row.split("|")[1] for row in rows)]
        assert not lacking, f"docs/methods.md lacks {', '.join(lacking)} in the first column of the table {table!r}"
