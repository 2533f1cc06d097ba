"""Set keys of a YAML file that ruamel.yaml has read for editing, without moving a comment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import UserError


def set_key(tree: Any, key: str, value: Any, path: Path, create: bool, order: Mapping[str, Any] | None = None) -> None:
    """Set one value of a file's mapping.

    Args:
        tree: The file's content, as ruamel.yaml returns it.
        key: Dotted, ``train.lr``.
        value: A plain value.
        path: The file, for messages.
        create: Whether a missing key is added; otherwise it is an error, as it may be a typing error.
        order: A nested mapping with all keys in the order in which a missing one is placed; default: at the end.

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
            _write(node, part, value, _place(node, part, list(order or {})))
            return
        if number + 1 < len(parts):
            node, order = node[part], (order or {}).get(part)
    _write(node, parts[-1], value, len(node))


def _place(node: Any, key: str, order: list[str]) -> int:
    """Return the position of a new key: behind the present one that precedes it in ``order``; unknown ones come last.

    Without one before it a key comes first, or last where a comment is about the key that is first.
    """
    present = list(node)
    if key not in order:
        return len(present)
    before = next((other for other in reversed(order[: order.index(key)]) if other in node), None)
    if before is None:
        return len(present) if node.ca.comment else 0
    return present.index(before) + 1


def _write(node: Any, key: str, value: Any, place: int) -> None:
    """Replace a value, or insert it. Comment lines below it, such as the next section's heading, stay below it.

    ruamel.yaml attaches those lines to the last value before them.
    """
    from ruamel.yaml.error import CommentMark
    from ruamel.yaml.tokens import CommentToken

    below = _take_lines_below(node, key if key in node else (list(node)[place - 1] if place else None))
    if key in node:
        node[key] = _commented(value)
    else:
        node.insert(place, key, _commented(value))
    comments, place = _comments(node, key)
    inner, comments[3] = comments[3], None
    if inner:  # lines between the key and the first value of what it held; a scalar cannot have them
        lines = "".join(" " * token.start_mark.column + token.value for token in inner)
        comments[place] = CommentToken(f"\n{lines}", CommentMark(0), None)
    if not below:
        return
    comments, place = _comments(*_last_value(node, key))
    if comments[place]:
        comments[place].value = comments[place].value.rstrip("\n") + below
    else:
        comments[place] = CommentToken(below, CommentMark(0), None)


def _commented(value: Any) -> Any:
    """Return mappings and lists as ruamel.yaml's own types, which can have comments; anything else unchanged."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if isinstance(value, Mapping):
        return CommentedMap({k: _commented(v) for k, v in value.items()})
    return CommentedSeq(map(_commented, value)) if isinstance(value, list | tuple) else value


def _last_value(node: Any, key: Any) -> tuple[Any, Any]:
    """Return the mapping or list, and its key, with the last written value of ``node[key]``."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    while isinstance(value := node[key], CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        node, key = value, next(reversed(value)) if isinstance(value, CommentedMap) else len(value) - 1
    return node, key


def _comments(holder: Any, key: Any) -> tuple[list[Any], int]:
    """Return the comments of a value of a mapping or list, and the index of the one behind it."""
    is_list = isinstance(holder, list)
    return holder.ca.items.setdefault(key, [None] * (2 if is_list else 4)), 0 if is_list else 2


def _take_lines_below(node: Any, key: Any) -> str:
    """Remove and return the lines between a value of a mapping and what follows it; ``key`` may be None."""
    if key is None:
        return ""
    comments, place = _comments(*_last_value(node, key))
    if comments[place] is None:
        return ""
    line, found, below = comments[place].value.partition("\n")
    if line.strip():  # a comment on the value's line, which stays there
        comments[place].value = line + "\n"
    else:
        comments[place] = None
    return f"\n{below}" if found and below else ""
