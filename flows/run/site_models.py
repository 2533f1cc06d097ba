"""The models of single sites as MLflow models: at the end of a run, or later (``fedscene log-models``)."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flows.engine.environment import prepare_torch, runs_root
from flows.run.find import checked_id, read_run
from flows.run.lock import locked_run
from flows.run.open import stored_context
from flows.run.results import model_metadata
from flows.settings.schema import Settings
from models.errors import UserError
from tasks.core.context import RunContext
from tasks.core.names import visible_name
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_round, load_records
from tasks.core.store import Store
from tasks.data.clients import load_clients
from tasks.data.images.resizing import RESIZED
from tasks.report.report import requested_rounds

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from tasks.tracking.site_models import SiteModel

Which = Literal["last", "best"]
ALL = "all"
_SHOWN = 20  # names in a message


@dataclass(frozen=True)
class LoggedSites:
    """What ``log_models`` has done.

    Attributes:
        run_id: The run.
        mlflow_run_id: Its id in MLflow.
        round: The round whose models they are.
        models: Site -> ``models:/<id>``.
        missing: Site -> why there is no model of it.
    """

    run_id: str
    mlflow_run_id: str
    round: int
    models: dict[str, str]
    missing: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def site_models(
    context: RunContext, resize: str, record: RoundRecord, sites: Sequence[str]
) -> "tuple[list[SiteModel], dict[str, str]]":
    """Return the sites' models after a round, to be built one after the other, and why others have none.

    Args:
        context: The run.
        resize: ``ingest.resize`` of its images.
        record: The round.
        sites: The sites (clients).
    """
    from tasks.tracking.site_models import SiteModel

    store, state = context.open_store(), record.state
    own = set(state.personalised)
    found: list[SiteModel] = []
    missing: dict[str, str] = {}
    for site in sites:
        if site not in own:
            missing[site] = f"the site has no model of its own after round {record.round}: it has never been trained"
            continue
        ref, overlays = state.own_model(site)
        if not all(store.holds(part) for part in (ref, *overlays)):
            missing[site] = f"its model of round {record.round} is gone: personal models of earlier rounds are deleted"
            continue
        found.append(
            SiteModel(site, record.round, _factory(context, resize, record, site), record.per_client.get(site, {}))
        )
    return found, missing


def _factory(
    context: RunContext, resize: str, record: RoundRecord, site: str
) -> "Callable[[], tuple[nn.Module, np.ndarray, dict[str, Any]]]":
    def make() -> "tuple[nn.Module, np.ndarray, dict[str, Any]]":
        import numpy as np

        from models.layers.probabilities import Probabilities
        from tasks.core.network import build_network, with_personal

        store, (ref, overlays) = context.open_store(), record.state.own_model(site)
        network = build_network(context, store, ref).cpu()
        for overlay in overlays:
            with_personal(network, store, overlay)
        size = context.image_size
        example = np.full((2, 3, size, size), 0.5, np.float32)  # no image of one site goes into its model
        metadata = model_metadata(context, size, RESIZED[resize]) | {"site": site, "round": record.round}
        return Probabilities(network.eval(), context.problem.activation).eval(), example, metadata

    return make


def chosen_record(records: Sequence[RoundRecord], which: Which) -> RoundRecord:
    """Return the last round, or the best one."""
    return records[-1] if which == "last" else records[best_round(records) - 1]


def log_models(
    root: Path, wanted: Sequence[str], which: Which = "last", notify: Callable[[str, int], None] = lambda *_: None
) -> LoggedSites:
    """Log the models of a finished run's sites to MLflow, those that it does not have yet.

    Args:
        root: The run's folder.
        wanted: Names of sites, several in one text with commas between them, or ``all``.
        which: The models of which round.
        notify: Called with each site whose model is in MLflow, and the number of models.

    Raises:
        UserError: If the run is not finished, has no such site or no personal model, or MLflow does not have it.
    """
    from tasks.tracking.availability import check_available
    from tasks.tracking.site_models import find_logged_run, log_site_models

    prepare_torch()
    with locked_run(root, "wait until it is finished"):
        settings, records = read_run(root), load_records(root, requested_rounds(root))
        _require_finished(root, settings, records)
        record = chosen_record(records, which)
        _require_personal(root, settings, record)
        sites = chosen_sites(wanted, known_sites(root, records))
        models, missing = site_models(stored_context(root), settings.ingest.resize, record, sites)
        if not models:
            raise UserError("no model to log", where=root, found=missing_line(missing))
        check_available(settings.tracking, runs_root())
        name = checked_id(str(Store(root).read_json("run.json")["run_id"]), f"{root}/run.json")
        run_id = find_logged_run(settings.tracking, runs_root(), name)
        if run_id is None:
            raise UserError(
                "MLflow does not have this run",
                where=f"experiment {settings.tracking.experiment}, run {name}",
                hint="repeat the run's command with tracking.enabled=true: it logs the run without training; then "
                "repeat this one",
            )
        done = log_site_models(settings.tracking, runs_root(), run_id, models, lambda site: notify(site, len(models)))
    if lacking := [entry.site for entry in models if entry.site not in done]:
        raise UserError(
            "the networks cannot be exported",
            where=f"MLflow run {run_id}",
            found=_names(lacking),
            hint="its tag fedscene.model_error.sites has the reason; the weights are in the run's folder",
        )
    return LoggedSites(name, run_id, record.round, done, missing)


def _require_finished(root: Path, settings: Settings, records: Sequence[RoundRecord]) -> None:
    """Refuse a run that was interrupted, and one that was made without MLflow."""
    last = requested_rounds(root) or settings.federation.rounds
    if len(records) < last:
        raise UserError(
            "the run is not finished",
            where=root,
            expected=f"{last} rounds",
            found=len(records),
            hint="repeat its command: it continues",
        )
    if not settings.tracking.enabled:
        raise UserError(
            "the run was made without MLflow",
            where=f"{root}: tracking.enabled false",
            hint="repeat its command with --set tracking.enabled=true: it logs the run without training",
        )


def _require_personal(root: Path, settings: Settings, record: RoundRecord) -> None:
    if not record.state.personalised:
        raise UserError(
            f"no site has a model of its own after round {record.round}",
            where=root,
            found=f"method {settings.method.name}",
            hint="MLflow has its shared model (docs/mlflow.md); docs/personal-models.md lists personalised methods",
        )


def known_sites(root: Path, records: Sequence[RoundRecord]) -> list[str]:
    """Return the run's sites, sorted: the clients of its partition; if that is gone, those that its rounds name."""
    facts = Store(root).read_json("run.json")
    try:
        clients = load_clients(Path(facts["clients"]))
        if clients.digest == facts["data_digest"]:
            return sorted(clients.ids)
    except (UserError, KeyError):
        pass  # the data may have been removed since
    named = {name for record in records for name in (*record.participants, *record.per_client)}
    return sorted(named | {name for record in records for name in record.state.personalised})


def chosen_sites(wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the sites that are asked for, each once, in the order of their names.

    Args:
        wanted: Names, several in one text with commas between them, or ``all``.
        known: The run's sites.

    Raises:
        UserError: If the run has no such site; with the nearest names.
    """
    names: list[str] = []
    for text in wanted:
        if text.strip() == ALL:
            return sorted(known)
        parts = [part.strip() for part in text.split(",") if part.strip()]
        names += [text] if text in known else parts
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown or not names:
        near = {name: _near(name, known) for name in unknown}
        guesses = [f"{visible_name(name)}: did you mean {_names(found)}?" for name, found in near.items() if found]
        raise UserError(
            "the run has no such site" if unknown else "no site given",
            where="--sites",
            expected=f"{ALL}, or some of: {_names(known)}",
            found=_names(unknown) if unknown else None,
            hint="; ".join(guesses) or None,
        )
    return sorted(set(names))


def _near(name: str, known: Sequence[str]) -> list[str]:
    """Return up to three names that resemble one, whatever their case."""
    folded: dict[str, list[str]] = {}
    for site in known:
        folded.setdefault(site.casefold(), []).append(site)
    near = difflib.get_close_matches(name.casefold(), list(folded), n=3)
    return [site for key in near for site in folded[key]]


def missing_line(missing: Mapping[str, str]) -> str:
    """Return in one line which sites have no model, and why."""
    by_reason: dict[str, list[str]] = {}
    for site, why in missing.items():
        by_reason.setdefault(why, []).append(site)
    return "; ".join(f"{_names(sites)}: {why}" for why, sites in by_reason.items())


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(visible_name, names[:_SHOWN])) + more
