"""The documentation's commands parse, its links lead somewhere."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from flows.cli.main import app
from flows.settings.files import load_settings
from tests.support.commands import commands

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
PRESETS = sorted((ROOT / "flows" / "settings" / "presets").glob("*.yaml"))


@pytest.mark.parametrize("page", PAGES + PRESETS, ids=lambda page: page.name)
def test_every_command_is_understood(page):
    for words in commands(page):
        if "..." in words or "METHOD" in words:
            continue
        command, rest = get_command(app), words[1:]
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        options = command.make_context(words[0], list(rest)).params
        sets = [text for text in options.get("set_") or () if text != "method.name=median"]  # CONTRIBUTING's example
        load_settings(Path(options["params"]) if options.get("params") else None, options.get("preset") or (), sets)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
