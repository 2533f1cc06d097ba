"""YAML text and plain values: one library, one dialect.

The dialect is YAML 1.1, in which settings files and DVC's files have always been read: ``yes`` and ``off`` are truth
values, 007 is the number 7. Three words of it stay text, as in PyYAML: y, n, and numbers such as 1e3, which have an
exponent without a dot or without a sign.
"""

import io
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver

from tasks.core.yaml_words import CONSTRUCTION_FAULTS

_HEADER = "%YAML 1.1\n---\n"
_TEXT = re.compile(
    r"[yYnN]|[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][0-9]+|[-+]?[0-9][0-9_]*[eE][-+][0-9]+|[-+]?\.[0-9_]+[eE][0-9]+"
)


class YamlTextError(ValueError):
    """A text that is not valid YAML; the message says where and why."""


class _Resolver(VersionedResolver):
    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0] and value and _TEXT.fullmatch(value):
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)


class _LastKeyWins(SafeConstructor):
    def check_mapping_key(self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any) -> bool:
        return True


def parse_yaml(text: str | bytes, unique_keys: bool = True) -> Any:
    """Return the plain values of one YAML document, ``None`` for an empty one.

    Args:
        text: The document; bytes are UTF-8 or UTF-16.
        unique_keys: Whether a key that appears twice in a mapping is refused; otherwise its last value counts.

    Raises:
        YamlTextError: If it is not valid YAML.
    """
    reader = _yaml()
    if not unique_keys:
        reader.Constructor = _LastKeyWins
    return _load(reader, text)


def parse_yaml_as_text(text: str) -> Any:
    """Return a YAML document in which every value is text: 007 and yes stay as they are written.

    Raises:
        YamlTextError: If it is not valid YAML.
    """
    reader = YAML(typ="base", pure=True)
    reader.allow_duplicate_keys = True
    return _load(reader, text)


def dump_yaml(value: Any) -> str:
    """Return plain values as YAML text in block style, keys in their order."""
    writer, text = _yaml(), io.StringIO()
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.dump(value, text)
    return text.getvalue().removeprefix(_HEADER)


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    yaml.Resolver = _Resolver
    return yaml


def _load(reader: YAML, text: str | bytes) -> Any:
    try:
        return reader.load(text)
    except DuplicateKeyError as error:
        problem = str(error.problem).partition(" with value")[0]  # without the values, which can be long
        raise YamlTextError(f"{problem}, line {error.problem_mark.line + 1}") from error
    except (YAMLError, *CONSTRUCTION_FAULTS) as error:
        raise YamlTextError(str(error)) from error
