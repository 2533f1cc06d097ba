"""Keys of a YAML file that ruamel.yaml has read for editing: set in place, added without moving a comment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError


def set_key(tree: Any, key: str, value: Any, path: Path, create: bool) -> None:
    """Sets one value of a file's mapping.

    Args:
        tree: What ruamel.yaml read.
        key: Dotted, ``train.lr``.
        value: A plain value.
        path: The file, for messages.
        create: Whether a key that is not there is added; otherwise it is an error, as it may be a slip.

    Raises:
        UserError: If the key is not there, or a part of it is no section.
    """
    parts = key.split(".")
    node = tree
    for number, part in enumerate(parts):
        if not isinstance(node, dict):
            above = ".".join(parts[:number])
            raise UserError(
                "Not a section", where=f"{path}: {above or 'the whole file'}", expected="a mapping", found=node
            )
        if part not in node:
            if not create:
                known = ", ".join(map(str, node)) or "nothing"
                raise UserError("No such parameter", where=f"{path}: {key}", expected=f"one of: {known}", found=part)
            for inner in reversed(parts[number + 1 :]):
                value = {inner: value}
            _append(node, part, value)
            return
        if number + 1 < len(parts):
            node = node[part]
    node[parts[-1]] = value


def _append(node: Any, key: str, value: Any) -> None:
    """Adds a last key. What stands below the mapping, such as the next section's heading, stays below it.

    ruamel.yaml keeps those lines with the last value that stands before them.
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
    """A mapping as ruamel.yaml's own, which can keep comments; anything else as it is."""
    from ruamel.yaml.comments import CommentedMap

    return CommentedMap({k: _commented(v) for k, v in value.items()}) if isinstance(value, Mapping) else value


def _last_value(node: Any) -> tuple[Any, Any]:
    """The mapping or list, and its key, that hold the last value written of ``node``, which is not empty."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    while True:
        key = list(node)[-1] if isinstance(node, CommentedMap) else len(node) - 1
        value = node[key]
        if not isinstance(value, CommentedMap | CommentedSeq) or not value or value.fa.flow_style():
            return node, key
        node = value


def _take_lines_below(node: Any) -> str:
    """The lines between the last value of a mapping and what follows it, taken away from where they are kept."""
    if not node or not hasattr(node, "ca"):
        return ""
    holder, last = _last_value(node)
    kept = holder.ca.items.get(last) or [None] * 3
    token = kept[0 if isinstance(holder, list) else 2]
    if token is None:
        return ""
    line, found, below = token.value.partition("\n")
    if line.strip():  # a remark on the value's own line, which stays there
        token.value = line + "\n"
    else:
        holder.ca.items.pop(last)
    return f"\n{below}" if found and below else ""
