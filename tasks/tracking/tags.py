"""Tags and params of a run in MLflow."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tasks.core.names import metric_parts
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_score

RUN_TAG = "fedscene.run_id"
# What the UI orders its menus by: training runs, not prompts and traces
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
DATA_TAG = "fedscene.data_version"
LAST_TAG = "fedscene.last_round"
LOGGED_TAG = "fedscene.logged_rounds"
ROUNDS_TAG = "fedscene.rounds"
BEST_TAG = "fedscene.best_round"
BEST_VALUE_TAG = "fedscene.best_score"
REPORT_TAG = "fedscene.report_digest"
STOPPED_TAG = "fedscene.stopped"
MODEL_TAG = "fedscene.model"  # .last, .best
MODEL_ERROR_TAG = "fedscene.model_error"
ROUND_TAG, SITE_TAG = "round", "fedscene.site"  # of a model
CUT_TAG = "fedscene.cut_params"
CHANGED_TAG = "fedscene.changed_params"
PARAM_LENGTH, TAG_LENGTH = 6000, 8000  # MLflow's limits
MAX_ROUNDS = 1_000_000  # in one range of a tag: a damaged one must not fill the memory


def plan_params(
    params: Mapping[str, Any], old: Mapping[str, str], tags: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the params that a run does not have yet, and its tags, which name params that are cut or changed."""
    parts = metric_parts(params)
    values = {parts[key]: str(value) for key, value in params.items()}
    cut = sorted(key for key, value in values.items() if len(value) > PARAM_LENGTH)
    values = {key: value[:PARAM_LENGTH] for key, value in values.items()}
    changed = [f"{key}: {old[key]} -> {value}" for key, value in values.items() if old.get(key, value) != value]
    sent = {str(key): str(value) for key, value in tags.items()}
    for tag, notes in ((CUT_TAG, cut), (CHANGED_TAG, changed)):
        if notes:
            sent[tag] = "; ".join(notes)
    new = {key: value for key, value in values.items() if key not in old}
    return new, {key: value[:TAG_LENGTH] for key, value in sent.items()}


def best_tags(tags: Mapping[str, str], record: RoundRecord) -> dict[str, str]:
    """Return the tags of the best round up to ``record``; of two equal rounds the earlier one is the best."""
    value, best = best_score(record), float(tags.get(BEST_VALUE_TAG, "nan"))
    earlier = value == best and record.round < int(tags[BEST_TAG])
    if math.isfinite(value) and (earlier or not value <= best):
        return {BEST_TAG: str(record.round), BEST_VALUE_TAG: repr(float(value))}
    if math.isfinite(best):
        return {BEST_TAG: tags[BEST_TAG]}
    return {BEST_TAG: str(max(record.round, int(tags.get(BEST_TAG, 0))))}


def format_ranges(numbers: Iterable[int]) -> str:
    """Return a set of numbers as text, ``1-3,5``, which fits a tag for any run."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def parse_ranges(text: str) -> set[int]:
    """Return the numbers in a text of ``format_ranges``; damaged parts are skipped: their rounds are logged again."""
    found: set[int] = set()
    for part in re.findall(r"\d+(?:-\d+)?", text):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), int(first) + MAX_ROUNDS) + 1))
    return found
