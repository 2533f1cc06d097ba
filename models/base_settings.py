"""The base of every settings section: unknown keys are errors, values cannot be changed after validation."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator


class Section(BaseModel):
    """A section of ``params.yaml``; a wrong key or type is refused before any work starts."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, protected_namespaces=(), allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, values: Any) -> Any:
        """Refuse YAML's yes and true where a number is expected; pydantic would read them as 1."""
        if isinstance(values, Mapping):
            for name, value in values.items():
                field = cls.model_fields.get(str(name))
                if field is None or not isinstance(value, bool):
                    continue
                accepted = set(get_args(field.annotation)) or {field.annotation}
                if accepted & {int, float} and bool not in accepted:
                    raise ValueError(f"{name} must be a number, found {value}")
        return values


def choice_section(title: str, names: Iterable[str], load: Any, default: str, about: str) -> type[Section]:
    """Create a section with a ``name`` and one block per name.

    Args:
        title: The section's class name.
        names: What can be chosen.
        load: ``load(name)`` returns a module; its ``Settings`` are the block.
        default: The name that is chosen by default.
        about: The description of ``name``.
    """
    blocks = {name: (load(name).Settings, Field(default_factory=load(name).Settings)) for name in names}
    fields: dict[str, Any] = {"name": (str, Field(default, description=about))} | blocks
    return create_model(title, __base__=Section, **fields)
