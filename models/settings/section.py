"""The base of every settings section: unknown keys are errors, values cannot be changed after validation."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator


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

    def refuse_changed(self, names: Iterable[str], why: str) -> None:
        """Raise a ValueError if one of these fields, which nothing uses, has another value than its default.

        Args:
            names: The unused fields.
            why: Why they are unused, for the message.
        """
        for name in names:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                raise ValueError(f"{name} is {value}, but {why}; leave it at {default}")


class Choice(Section):
    """A section with a ``name`` and one block per name; see ``choice_section``."""

    name: str

    @property
    def chosen(self) -> Any:
        """The block of the chosen name."""
        return getattr(self, self.name)


def choice_section(
    what: str, names: Iterable[str], load: Callable[[str], Any], default: str, about: str
) -> type[Choice]:
    """Create a section in which one of several modules is chosen; another name is refused.

    Args:
        what: What is chosen, for messages: ``method``.
        names: What can be chosen.
        load: ``load(name)`` returns a module; its ``Settings`` are the block.
        default: The name that is chosen by default; it need not have a block.
        about: The description of ``name``.
    """

    def known(cls: type[Choice], name: str) -> str:
        del cls
        if name not in choices:
            raise ValueError(f"no such {what}; known: {', '.join(choices)}")
        return name

    blocks = {name: (load(name).Settings, Field(default_factory=load(name).Settings)) for name in names}
    choices = list(blocks) if default in blocks else [default, *blocks]
    fields: dict[str, Any] = {"name": (str, Field(default, description=about))} | blocks
    validators: dict[str, Any] = {"name_is_known": field_validator("name")(classmethod(known))}
    return create_model(what.title(), __base__=Choice, __validators__=validators, **fields)
