"""Set keys of a YAML file that ruamel.yaml has read for editing, without moving a comment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError


def set_key(tree: Any, key: str, value: Any, path: Path, create: bool) -> None:
    """Set one value of a file's mapping.

    Args:
        tree: The file's content, as ruamel.yaml returns it.
        key: Dotted, ``train.lr``.
        value: A plain value.
        path: The file, for messages.
        create: Whether a missing key is added; otherwise it is an error, as it may be a typing error.

    Raises:
        UserError: If the key is missing, or a part of it is not a section.
    """
    parts = key.split(".")
    node = tree
    for number, part in enumerate(parts):
        if not isinstance(node, dict):
            above = ".".join(parts[:number])
            raise UserError(
                "not a section", where=f"{path}: {above or 'the whole file'}", expected="a mapping", found=node
            )
        if part not in node:
            if not create:
                known = ", ".join(map(str, node)) or "nothing"
                raise UserError("no such parameter", where=f"{path}: {key}", expected=f"one of: {known}", found=part)
            for inner in reversed(parts[number + 1 :]):
                value = {inner: value}
            _append(node, part, value)
            return
        if number + 1 < len(parts):
            node = node[part]
    node[parts[-1]] = value


def _append(node: Any, key: str, value: Any) -> None:
    """Append a key. Comment lines below the mapping, such as the next section's heading, stay below it.

    ruamel.yaml attaches those lines to the last value before them.
    """
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    below = _take_lines_below(node)
    node[key] = _commented(value)
    if not below:
        return
    holder, last = _last_value(node)
    token = CommentToken(below, CommentMark(0), None)
    holder.ca.items[last] = [token, None] if isinstance(holder, list) else [None, None, token, None]


def _commented(value: Any) -> Any:
    """Return a mapping as ruamel.yaml's own type, which can have comments; anything else unchanged."""
    from ruamel.yaml.comments import CommentedMap

    return CommentedMap({k: _commented(v) for k, v in value.items()}) if isinstance(value, Mapping) else value


def _last_value(node: Any) -> tuple[Any, Any]:
    """Return the mapping or list, and its key, with the last written value of ``node``, which is not empty."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    while True:
        key = list(node)[-1] if isinstance(node, CommentedMap) else len(node) - 1
        value = node[key]
        if not isinstance(value, CommentedMap | CommentedSeq) or not value or value.fa.flow_style():
            return node, key
        node = value


def _take_lines_below(node: Any) -> str:
    """Remove and return the lines between the last value of a mapping and what follows it."""
    if not node or not hasattr(node, "ca"):
        return ""
    holder, last = _last_value(node)
    comments = holder.ca.items.get(last) or [None] * 3
    token = comments[0 if isinstance(holder, list) else 2]
    if token is None:
        return ""
    line, found, below = token.value.partition("\n")
    if line.strip():  # a comment on the value's line, which stays there
        token.value = line + "\n"
    else:
        holder.ca.items.pop(last)
    return f"\n{below}" if found and below else ""
