"""Finished runs to compare, and why others cannot be compared with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.run.find import find_run, read_run
from flows.run.inputs import result_settings
from flows.settings.dotted import flat
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.names import visible_name
from tasks.core.problem_kind import Kind
from tasks.core.records import RoundRecord
from tasks.core.round_summary import last_evaluated, load_records
from tasks.core.store import Store
from tasks.report.report import requested_rounds

# Settings that decide how a model is measured, not which model comes out
MEASURES = ("threshold", "thresholds", "zero_support", "new_clients")


@dataclass(frozen=True)
class ComparedRun:
    """A finished run.

    Attributes:
        id: The name of its folder.
        settings: Its settings.
        classes: Its labels, in order.
        kind: Kind of problem.
        data_digest: Digest of its partition, which names the data set's.
        code: The code that started it.
        records: Its rounds.
    """

    id: str
    settings: Settings
    classes: tuple[str, ...]
    kind: Kind
    data_digest: str
    code: str
    records: list[RoundRecord]

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.settings.seed

    @property
    def last(self) -> RoundRecord:
        """Its last evaluated round."""
        return last_evaluated(self.records)

    @property
    def deciding(self) -> dict[str, Any]:
        """What decides its result beside seed, data and code: dotted name -> value, of the chosen parts only."""
        return deciding_settings(self.settings, self.kind)


def deciding_settings(settings: Settings, kind: Kind) -> dict[str, Any]:
    """Return the settings that a result depends on as dotted name -> value, with the number of rounds."""
    values = result_settings(settings, kind)
    for section in ("objective", "method"):
        name, own = values[section]
        values[section] = {"name": name, name: own}
    name, own, weighting, client, server, downlink = values["aggregation"]
    values["aggregation"] = {
        "name": name, name: own, "weighting": weighting, "client_transforms": client, "server_transforms": server,
        "downlink_transforms": downlink,
    }  # fmt: skip
    federation = as_values(settings)["federation"]
    values["federation"] |= {key: federation[key] for key in ("rounds", "stop")}
    return {key: value for key, value in flat(values).items() if value != {}}  # a method without settings


def load_runs(root: Path, ids: Sequence[str]) -> tuple[list[ComparedRun], dict[str, str]]:
    """Return the runs that can be compared with each other, and why the others cannot.

    The first run that is finished is the one that the others must fit.

    Args:
        root: Folder of runs.
        ids: Names of runs, or paths of their folders; one that is named twice counts once.

    Raises:
        UserError: If there is no such run, or fewer than two can be compared.
    """
    runs: list[ComparedRun] = []
    refused: dict[str, str] = {}
    for name in dict.fromkeys(_run_id(root, text) for text in ids):
        folder = find_run(root, name)
        try:
            run = _read(folder)
        except UserError as error:
            refused[name] = " ".join(str(error).split())
            continue
        why = _unfinished(folder, run) or _unlike(run, runs)
        if why:
            refused[name] = why
        else:
            runs.append(run)
    if len(runs) < 2:
        lines = [f"{visible_name(name)}: {why}" for name, why in refused.items()]
        raise UserError(
            "fewer than two runs can be compared",
            where="fedscene compare",
            expected="finished runs on the same images",
            found="\n    " + "\n    ".join(lines) if lines else f"{visible_name(ids[0])} alone",
        )
    return runs, refused


def _run_id(root: Path, text: str) -> str:
    """Return the id of a run that is named by its id or by the path of its folder, as a shell completes it."""
    path = Path(text)
    return path.name if len(path.parts) > 1 and path.resolve().parent == root.resolve() else text


def _read(folder: Path) -> ComparedRun:
    settings, facts = read_run(folder), Store(folder).read_json("run.json")
    return ComparedRun(
        folder.name,
        settings,
        tuple(facts["classes"]),
        facts.get("kind", "multi_label"),
        str(facts.get("data_digest", "")),
        str(facts.get("code", "")),
        load_records(folder, requested_rounds(folder)),
    )


def _unfinished(folder: Path, run: ComparedRun) -> str:
    """Say what a run lacks, "" if it is finished."""
    done, last = len(run.records), requested_rounds(folder) or run.settings.federation.rounds
    if done < last:
        return f"it is not finished: {done} of {last} rounds; repeat its command"
    return "" if run.records[-1].metrics else "its last round has not been evaluated; repeat its command"


def _unlike(run: ComparedRun, others: Sequence[ComparedRun]) -> str:
    """Say in what a run's labels, test images or metrics differ from the others', "" if in nothing."""
    if not others:
        return ""
    first = others[0]
    if (run.classes, run.kind) != (first.classes, first.kind):
        return f"it has other labels than {visible_name(first.id)}: {_label_difference(run, first)}"
    same_seed = next((other for other in others if other.seed == run.seed), None)
    if same_seed is not None and run.data_digest != same_seed.data_digest:
        changed = ", ".join(_changed(_data(run), _data(same_seed))) or "their source or the code that reads it changed"
        return f"it has other images than {visible_name(same_seed.id)}, of the same seed: {changed}"
    if same_seed is None and (changes := list(_changed(_data(run), _data(first)))):
        return f"it has other images than {visible_name(first.id)}: {', '.join(changes)}"
    measured = [
        {f"evaluation.{key}": getattr(entry.settings.evaluation, key) for key in MEASURES} for entry in (run, first)
    ]
    if changes := list(_changed(*measured)):
        return f"its metrics are other ones than those of {visible_name(first.id)}: {', '.join(changes)}"
    return ""


def _data(run: ComparedRun) -> dict[str, Any]:
    """Return the settings that its images and their assignment to clients come from."""
    values = as_values(run.settings)
    return flat({section: values[section] for section in ("ingest", "partition")})


def _changed(values: Mapping[str, Any], others: Mapping[str, Any]) -> Iterator[str]:
    """Yield each setting that differs: ``key 5, not 3``."""
    for key in dict.fromkeys((*values, *others)):
        if values.get(key) != others.get(key):
            yield f"{key} {values.get(key)}, not {others.get(key)}"


def _label_difference(run: ComparedRun, other: ComparedRun) -> str:
    mine, others = set(run.classes), set(other.classes)
    named = (("with", sorted(mine - others)), ("without", sorted(others - mine)))
    parts = [f"{what} {', '.join(map(visible_name, names[:10]))}" for what, names in named if names]
    if run.kind != other.kind:
        parts.append(f"{run.kind} in place of {other.kind}")
    return "; ".join(parts) or "in another order"
