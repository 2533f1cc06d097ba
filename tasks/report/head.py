"""The head of a report, which says what was run and how good it is, and the table of all settings at its end."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.core.metric_titles import TITLES
from tasks.core.problem import primary_metric
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, best_score, last_evaluated
from tasks.core.run_end import RunEnd
from tasks.data.ingest.audit_report import REPORT
from tasks.data.ingest.unusable_files import unusable_line
from tasks.evaluation.chance import CHANCE
from tasks.evaluation.thresholds import thresholds_of
from tasks.plotting.markdown import markdown_table, safe_cell
from tasks.report.round_table import NONE
from tasks.tracking.uri import without_password


def head_section(
    run: Mapping[str, Any],
    settings: Mapping[str, Any],
    records: Sequence[RoundRecord],
    threshold: float,
    end: RunEnd | None = None,
) -> str:
    """Return the title, the table of results and facts, and notes on both.

    Args:
        run: Content of ``run.json``.
        settings: Content of ``settings.json``.
        records: The rounds of the report.
        threshold: From which score on a label is predicted.
        end: Why the run was stopped, if it was.
    """
    ended = {"stopped": end.reason} if end is not None and end.round == len(records) else {}
    known = {key: value for key, value in run.items() if isinstance(value, str | int | float) and key != "kind"}
    kind = {"kind of problem": str(run.get("kind", "multi_label")).replace("_", "-")}
    aggregation = dict(_aggregation(settings.get("aggregation") or {}))
    facts = _results(records) | ended | kind | known | aggregation | {"classes": len(run["classes"])}
    table = markdown_table(["what", "value"], [[key, _value(value)] for key, value in facts.items()])
    unused = unusable_line(run.get("input") or {}, where=False)
    parts = [
        f"# {safe_cell(run.get('run_id', 'Run'))}",
        table,
        _note(last_evaluated(records), threshold),
        f"{unused}; they are listed under [input files and their status]({REPORT})." if unused else "",
        "## Plots",
    ]
    return "\n\n".join(part for part in parts if part)


def _results(records: Sequence[RoundRecord]) -> dict[str, object]:
    evaluated, best = last_evaluated(records), best_round(records)
    last, score = evaluated.metrics, next(best_score(record) for record in records if record.round == best)
    main = primary_metric(last)
    title = TITLES[main]
    return {
        f"{title}, round {evaluated.round}": last.get(main, math.nan),
        f"{title}, chance level": last.get(CHANCE + main, last.get("mean_prevalence", math.nan)),
        "best round by validation": f"{best} (validation {title} {score:.4f})" if math.isfinite(score) else NONE,
        "rounds": len(records),
    }


def _aggregation(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the aggregator with its settings unless it is the mean, and the transforms of updates if there are any."""
    name = settings.get("name", "mean")
    if name != "mean":
        yield "aggregator", _with_settings(name, settings.get(name) or {})
    for side in ("client", "server"):
        if specs := settings.get(f"{side}_transforms"):
            shown = (_with_settings(spec["name"], {k: v for k, v in spec.items() if k != "name"}) for spec in specs)
            yield f"transforms at the {side}", ", ".join(shown)


def _with_settings(name: str, settings: Mapping[str, Any]) -> str:
    """Return ``krum (byzantine=1)``, or the name alone without settings."""
    shown = ", ".join(f"{key}={_value(value)}" for key, value in _leaves(settings))
    return f"{name} ({shown})" if shown else name


def _note(evaluated: RoundRecord, threshold: float) -> str:
    """Say why all metrics of predicted labels are 0, "" if they are not."""
    last = evaluated.metrics
    predicted = last.get("micro_recall") != 0 or last.get("micro_precision") != 0 or thresholds_of(evaluated.per_class)
    note = f"No positive label has a score of {threshold:g} or more: F1, precision and recall are 0. Train longer."
    return "" if predicted else note


def settings_section(settings: Mapping[str, Any]) -> str:
    """Return the table of all settings, a row per section."""
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    sections = {**({"(top)": plain} if plain else {}), **{k: v for k, v in settings.items() if isinstance(v, dict)}}
    lines = [
        [name, ", ".join(f"{key}={_value(value)}" for key, value in _leaves(part))] for name, part in sections.items()
    ]
    return f"## Settings\n\n{markdown_table(['section', 'values'], lines)}"


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else "unset" if value is None else without_password(value)


def _leaves(part: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in part.items():
        leaves += _leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return leaves
