"""Digests of source code: what a result depends on, without what cannot change it.

Modules are read as text, never imported. Comments, docstrings, ``description=`` texts of settings and imports for type
checkers do not count, so that editing them leaves runs and decoded images valid.
"""

import ast
import copy
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_MODULE = re.compile(r"(?:flows|tasks|models)(?:\.\w+)+")
# Messages, settings' base, files, locks and records: they carry numbers and never change one.
PLUMBING = (
    "models.errors",
    "models.files",
    "models.settings.section",
    "tasks.core.context",
    "tasks.core.federation_settings",
    "tasks.core.finished_rounds",
    "tasks.core.former_names",
    "tasks.core.json_files",
    "tasks.core.locks",
    "tasks.core.model_ref",
    "tasks.core.names",
    "tasks.core.own_models",
    "tasks.core.processes",
    "tasks.core.record_reading",
    "tasks.core.records",
    "tasks.core.round_state",
    "tasks.core.round_summary",
    "tasks.core.source_digest",
    "tasks.core.state_cache",
    "tasks.core.store",
    "tasks.core.tables",
    "tasks.core.yaml_words",
)
_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop)  # most nodes: nothing is in them
_TEXTS = frozenset({"DESCRIPTION", "LAYOUT"})  # constants of modules that are shown and nothing else


class _Normaliser(ast.NodeTransformer):
    """Removes what cannot change a result.

    Args:
        dropped: Names of assignments that are left out: registries, whose chosen entries are digested apart.
    """

    def __init__(self, dropped: Collection[str]) -> None:
        self.dropped = _TEXTS | set(dropped)

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, _LEAVES) else super().visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = body[1:] or [ast.Pass()]
        return super().generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        if _for_type_checkers(node):
            return None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in ("description", "title")]
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        return None if names & self.dropped else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        named = isinstance(node.target, ast.Name) and node.target.id in self.dropped
        return None if named else self.generic_visit(node)


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def normalised(source: str, dropped: Collection[str] = ()) -> str:
    """Return a module's code without comments, docstrings, descriptions, type-only imports and named assignments."""
    return ast.unparse(_Normaliser(dropped).visit(ast.parse(source)))


def normalised_entry(entry: ast.expr) -> str:
    """Return an entry of a registry as code, without its descriptions."""
    return ast.unparse(_Normaliser(()).visit(copy.deepcopy(entry)))


def path_of(module: str, root: Path = ROOT) -> Path | None:
    """Return the file of a module of this project, ``None`` where there is none."""
    base = root.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@dataclass(frozen=True)
class _Source:
    """What digests need of a module; parsing takes longest, so each is parsed once.

    Attributes:
        modules: What is imported as a whole.
        names: Module -> what is imported from it, for each such statement.
        arguments: Texts that are the first argument of a call.
        code: The ``normalised`` code, with all assignments.
    """

    modules: frozenset[str]
    names: tuple[tuple[str, frozenset[str]], ...]
    arguments: frozenset[str]
    code: str


@cache
def _read(path: Path) -> _Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules: set[str] = set()
    names: list[tuple[str, frozenset[str]]] = []
    arguments: set[str] = set()
    for node in _nodes(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append((node.module, frozenset(alias.name for alias in node.names)))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            arguments.add(str(node.args[0].value))
    code = ast.unparse(_Normaliser(()).visit(tree))  # changes the tree, so this comes last
    return _Source(frozenset(modules), tuple(names), frozenset(arguments), code)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without what only type checkers see, and without leaves."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        children = (child for child in ast.iter_child_nodes(node) if not isinstance(child, _LEAVES))
        stack += [child for child in children if not _for_type_checkers(child)]


def registry_entries(module: str, name: str, root: Path = ROOT) -> dict[str, ast.expr]:
    """Return key -> value of a dictionary that a module assigns to ``name`` at its top level.

    Args:
        module: Dotted name.
        name: The dictionary's.
        root: Folder of the sources.
    """
    path = path_of(module, root)
    assert path is not None, module
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        if any(isinstance(target, ast.Name) and target.id == name for target in targets) and isinstance(
            value, ast.Dict
        ):
            pairs = zip(value.keys, value.values, strict=True)
            return {str(key.value): entry for key, entry in pairs if isinstance(key, ast.Constant)}
    raise AssertionError(f"{module} has no dictionary {name}")


def modules_named(entry: ast.expr) -> set[str]:
    """Return the project's modules that texts of an expression name, as in ``tasks.client.train:function``."""
    texts = (node.value for node in ast.walk(entry) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {found[0] for text in texts if (found := _MODULE.match(text))}


def imported(module: str, root: Path = ROOT, named: Mapping[str, Collection[str]] | None = None) -> set[str]:
    """Return the project's modules that a module imports anywhere, or names as the first argument of a call.

    As in ``AggregatorSpec("tasks.server.scaffold")``, or by the name of a task or regulariser.

    Args:
        module: Dotted name.
        root: Folder of the sources.
        named: Name -> modules; a call whose first argument is such a name needs those modules.
    """
    path = path_of(module, root)
    assert path is not None, module
    source = _read(path)
    found = {*source.modules, *source.arguments}
    for package, names in source.names:
        inner = {
            name for name in names if _MODULE.fullmatch(f"{package}.{name}") and path_of(f"{package}.{name}", root)
        }
        found |= {f"{package}.{name}" for name in inner} | ({package} if names - inner else set())
    for text in source.arguments:
        found |= set((named or {}).get(text, ()))
    return {name for name in found if _MODULE.fullmatch(name) and path_of(name, root)}


def closure(
    seeds: Iterable[str],
    skip: Collection[str] = (),
    root: Path = ROOT,
    named: Mapping[str, Collection[str]] | None = None,
) -> list[str]:
    """Return the seeds and all they need, sorted.

    Args:
        seeds: Dotted names.
        skip: Modules and packages that are left out with what only they need.
        root: Folder of the sources.
        named: As for ``imported``.
    """
    left_out = tuple(f"{name}." for name in skip)
    done: set[str] = set()
    open_ = set(seeds)
    while open_:
        module = open_.pop()
        done.add(module)
        needed = imported(module, root, named) - done
        open_ |= {name for name in needed if not f"{name}.".startswith(left_out)}
    return sorted(done)


def source_digest(
    modules: Iterable[str], dropped: Mapping[str, Collection[str]] | None = None, root: Path = ROOT
) -> str:
    """Return the sha256 over the normalised code of modules.

    Args:
        modules: Dotted names.
        dropped: Module -> names of assignments that do not count.
        root: Folder of the sources.
    """
    total = hashlib.sha256()
    for module in sorted(modules):
        path = path_of(module, root)
        assert path is not None, module
        total.update(f"{module}\n{_normalised_file(path, tuple((dropped or {}).get(module, ())))}\n".encode())
    return total.hexdigest()


@cache
def _normalised_file(path: Path, dropped: tuple[str, ...]) -> str:
    return normalised(path.read_text(encoding="utf-8"), dropped) if dropped else _read(path).code
