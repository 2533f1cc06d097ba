"""Tests use what is public: no private name of a project module is imported, read or replaced in a test."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLOORS = ("flows", "tasks", "models")
DOTTED = re.compile(r"(flows|tasks|models)(\.\w+)*\._[a-z]\w*")  # "tasks.report.report._draw", as monkeypatch takes it


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def private_names():
    """Names with an underscore that a module or class of the three floors defines."""
    found = set()
    for file in (path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return {name for name in found if is_private(name)}


def uses(tree, private):
    """(line, what) of every use of a private name in a test file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FLOORS:
            yield from ((node.lineno, entry.name) for entry in node.names if is_private(entry.name))
        elif isinstance(node, ast.Attribute) and node.attr in private:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            yield node.lineno, node.value


def test_no_test_reaches_into_private_names():
    private, found = private_names(), []
    assert len(private) > 100
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for line, what in uses(ast.parse(file.read_text()), private):
            found.append(f"{file.relative_to(ROOT)}:{line}: {what}")
    assert not found, "make the thing public, or test through what is:\n" + "\n".join(found)


def test_the_search_finds_each_way_in():
    text = """
from tasks.report.report import _draw
monkeypatch.setattr("tasks.report.report._draw", None)
fed._need_quorum([])
self._need_quorum([])
os._exit(1)
"""
    assert [line for line, _ in uses(ast.parse(text), {"_need_quorum", "_draw"})] == [2, 3, 4]
