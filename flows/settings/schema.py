"""The schema of ``params.yaml``: one section per stage, validated as a whole before any work starts."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from flows.methods import METHODS, load_method
from flows.settings.consistency import check_consistency
from flows.settings.renames import refuse_old_names
from models.errors import UserError
from models.registry import NETWORKS
from models.settings.model import ModelSettings
from models.settings.section import Section, choice_section
from tasks.client.objectives import OBJECTIVES, load_objective
from tasks.core.evaluation_settings import EvaluationSettings
from tasks.core.federation_settings import FederationSettings
from tasks.core.problem import load_problem
from tasks.core.problem_kind import Kind
from tasks.core.train_settings import TrainSettings
from tasks.core.update_transforms import TRANSFORMS, load_transform
from tasks.core.yaml_words import quotes_hint
from tasks.data.ingest.ingest import IngestSettings
from tasks.data.partition import PartitionSettings
from tasks.report.report import ReportSettings
from tasks.server.aggregators.settings import AggregationSettings
from tasks.tracking.settings import TrackingSettings

_Method = choice_section(
    "method", METHODS, load_method, "fmman", "The federated algorithm; `fedscene methods` lists them."
)
_Objective = choice_section(
    "objective",
    OBJECTIVES,
    load_objective,
    "default",
    "The loss; `fedscene methods` lists them. default is the network's own, and ce for single-label data.",
)


# pydantic's error types for a value that must be text, and our messages
_TEXT_EXPECTED = {"string_type": "must be text", "path_type": "must be a path", "invalid_key": "a key must be text"}


class MethodSettings(_Method):  # type: ignore[valid-type,misc]
    """Which federated algorithm runs, and the settings of each."""


class ObjectiveSettings(_Objective):  # type: ignore[valid-type,misc]
    """Which loss clients minimise."""


class Settings(Section):
    """All settings of a run. ``fedscene settings`` prints them."""

    seed: int = Field(7, ge=0, lt=2**63, description="All random numbers derive from it.")
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    partition: PartitionSettings = Field(default_factory=PartitionSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    objective: ObjectiveSettings = Field(default_factory=ObjectiveSettings)
    method: MethodSettings = Field(default_factory=MethodSettings)
    aggregation: AggregationSettings = Field(default_factory=AggregationSettings)
    train: TrainSettings = Field(default_factory=TrainSettings)
    federation: FederationSettings = Field(default_factory=FederationSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    tracking: TrackingSettings = Field(default_factory=TrackingSettings)
    report: ReportSettings = Field(default_factory=ReportSettings)

    @property
    def objective_name(self) -> str:
        """The objective in effect for the source that the settings name."""
        return self.objective_for(self.ingest.problem_kind)

    def objective_for(self, kind: Kind) -> str:
        """Return the objective for a kind of problem: ``default`` is the network's own, or ``ce`` for single labels."""
        name: str = self.objective.name
        if name != "default":
            return name
        return NETWORKS[self.model.name].objectives[0] if kind == "multi_label" else load_problem(kind).objective

    @model_validator(mode="after")
    def _sections_are_consistent(self) -> "Settings":
        check_consistency(self)
        return self


def validate(values: Mapping[str, Any], where: str) -> Settings:
    """Return the settings of plain values.

    Raises:
        UserError: If they are not valid; the message names every fault.
    """
    refuse_old_names(values, where)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = [_fault(entry) for entry in error.errors(include_url=False)]
        raise UserError(
            "the settings are not valid" if len(lines) > 1 else f"not a valid setting: {lines[0]}",
            where=where,
            found="\n    " + "\n    ".join(lines) if len(lines) > 1 else None,
        ) from error


def _fault(entry: Any) -> str:
    """Return one line: the dotted key, what was expected and what was found."""
    key = ".".join(str(part) for part in entry["loc"]) or "settings"
    if entry["type"] == "extra_forbidden":
        known = _known_keys(entry["loc"][:-1])
        near = difflib.get_close_matches(str(entry["loc"][-1]), known, n=1)
        guess = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
        return f"{key}: unknown key; {guess}"
    message = entry["msg"].removeprefix("Value error, ")
    if entry["type"] == "value_error":
        return f"{key}: {message}"
    shown = repr(entry["input"])
    shown = shown if len(shown) < 200 else f"{shown[:200]} ..."
    line = f"{key}: {_TEXT_EXPECTED.get(entry['type'], message)}; found {shown}"
    hint = quotes_hint(entry["input"]) if entry["type"] in (*_TEXT_EXPECTED, "literal_error") else ""
    return f"{line} ({hint})" if hint else line


def _known_keys(loc: Sequence[Any]) -> list[str]:
    """Return the keys of the section at ``loc``."""
    section: Any = Settings
    for part in loc:
        if isinstance(part, str) and part in TRANSFORMS:
            section = load_transform(part).Settings  # an element of a list, told apart by its name
        elif isinstance(part, str):
            section = section.model_fields[part].annotation
    return sorted(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []


def as_values(settings: Settings) -> dict[str, Any]:
    """Return plain JSON/YAML values of all settings, including defaults."""
    return settings.model_dump(mode="json")
