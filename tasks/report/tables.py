"""The tables of a report: rounds, classes, sites, clients, clusters, and what was dropped or noted."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tasks.core.names import visible_name
from tasks.core.records import RoundRecord
from tasks.core.round_summary import client_quality
from tasks.data.partition.participation import TRAINED_ON
from tasks.evaluation.chance_comparison import HEADS, comparison_rows, warnings
from tasks.plotting.markdown import markdown_table, safe_cell
from tasks.report.round_table import COLUMNS, NONE, round_row, shown_row

COLUMNS_NOTE = (
    "MB down counts equal multiplicity to one client once. Worst clients: mean loss of the worst tenth of them."
)
COUNTS = ("support", "images", "classes_used", "count", TRAINED_ON)
MAX_CLIENTS = 100  # rows of the table of clients
SPREAD_KEYS = ("mean", "std", "worst_decile", "min", "max", "count")


def rounds_section(records: Sequence[RoundRecord]) -> str:
    """A row per round."""
    table = markdown_table([title for _, title, _ in COLUMNS], [shown_row(round_row(record)) for record in records])
    return f"## Rounds\n\n{table}\n\n{COLUMNS_NOTE}"


def scores_section(record: RoundRecord) -> str:
    """The scores beside what is reached without looking at any image, and what they do not show."""
    rows = comparison_rows(record.metrics)
    if not rows:
        return ""
    parts = [
        f"## Scores, round {record.round}",
        markdown_table(list(HEADS), rows),
        "Without seeing images: labels' shares in the training images as scores (AP, loss), or the same most frequent "
        "labels said of every image (F1). The interval comes from resampled test images; two trainings differ by more.",
        "\n".join(f"- **Note:** {line}." for line in warnings(record.metrics)),
    ]
    return "\n\n".join(part for part in parts if part)


def sites_section(record: RoundRecord) -> str:
    """A row per site; sites that no client trains on have a table of their own."""
    trained = {site: row for site, row in record.per_site.items() if row.get(TRAINED_ON, 1)}
    unseen = {site: row for site, row in record.per_site.items() if site not in trained}
    parts = [breakdown("Sites", trained, record)]
    if unseen:
        parts += [
            breakdown("Sites that take no part", unseen, record),
            "No client trains on an image of these sites: their figures show how the model does at a new site.",
        ]
        means = {kind: record.metrics.get(f"site_mean/{kind}/macro_ap") for kind in ("trained", "never_trained")}
        if None not in means.values():
            parts.append(
                f"Mean macro AP: {_number(means['trained'], '')} over sites that train, "
                f"{_number(means['never_trained'], '')} over the others."
            )
    return "\n\n".join(part for part in parts if part)


def breakdown(title: str, table: Mapping[str, Mapping[str, float]], record: RoundRecord) -> str:
    """A row per class, site or client, or nothing where there is no table."""
    if not table:
        return ""
    keys = list(dict.fromkeys(key for cells in table.values() for key in cells))
    rows = [[visible_name(name), *(_number(cells.get(key), key) for key in keys)] for name, cells in table.items()]
    return f"## {title}, round {record.round}\n\n" + markdown_table(["name", *keys], rows)


def classes_section(record: RoundRecord, zero_support: str) -> str:
    """A row per class, and by name the classes without a positive test image."""
    absent = [name for name, cells in record.per_class.items() if cells.get("support") == 0]
    if not absent:
        return breakdown("Classes", record.per_class, record)
    become = {
        "exclude": "They are in no macro mean",
        "zero": "They enter every macro mean as 0",
        "zero_f1": "They are not in macro-AP, and enter macro precision, recall and F1 as 0",
    }[zero_support]
    names = ", ".join(safe_cell(visible_name(name)) for name in absent)
    note = f"Without a positive test image, and so without AP: {names}. {become}."
    return f"{breakdown('Classes', record.per_class, record)}\n\n{note}"


def clients_section(record: RoundRecord) -> str:
    """How the clients' figures are spread, and a row per client, the worst first."""
    if not record.per_client:
        return ""
    spreads: dict[str, dict[str, float]] = defaultdict(dict)
    for name, value in record.metrics.items():
        if name.startswith("client/"):
            _, metric, key = name.split("/")
            spreads[metric][key] = value
    rows = [[metric, *(_number(cells.get(key), key) for key in SPREAD_KEYS)] for metric, cells in spreads.items()]
    quality = client_quality(record)
    shown = sorted(record.per_client, key=lambda client: (quality.get(client, math.inf), client))[:MAX_CLIENTS]
    hidden = len(record.per_client) - len(shown)
    parts = [
        breakdown("Clients", {client: record.per_client[client] for client in shown}, record),
        f"{hidden} more clients are not shown; round.json has all." if hidden else "",
        "A client's own test images; `personal_`: its personal model on the pooled test set. worst_decile: the mean of "
        "the worst tenth of the clients; count: those that have a value.",
        markdown_table(["over the clients", *SPREAD_KEYS], rows),
    ]
    return "\n\n".join(part for part in parts if part)


def clusters_section(records: Sequence[RoundRecord]) -> str:
    """Who is in which cluster, in the last round that has clusters."""
    record = next((record for record in reversed(records) if record.cluster_of), None)
    if record is None:
        return ""
    members: dict[int, list[str]] = defaultdict(list)
    for client, group in sorted(record.cluster_of.items()):
        members[group].append(visible_name(client))
    rows = [[str(group), str(len(clients)), ", ".join(clients)] for group, clients in sorted(members.items())]
    return f"## Clusters, round {record.round}\n\n" + markdown_table(["cluster", "clients", "who"], rows)


def dropped_section(records: Sequence[RoundRecord]) -> str:
    """Every client that did not count, why, and in which rounds."""
    cases: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for record in records:
        for entry in record.dropped:
            cases[entry.client, entry.stage, entry.reason].append(record.round)
    if not cases:
        return "## Dropped clients\n\nNone: every client that was asked counted."
    rows = [
        [visible_name(client), str(stage), reason, str(len(rounds)), ", ".join(map(str, rounds))]
        for (client, stage, reason), rounds in sorted(cases.items())
    ]
    return "## Dropped clients\n\n" + markdown_table(["client", "stage", "reason", "times", "rounds"], rows)


def notes_section(records: Sequence[RoundRecord]) -> str:
    """What deviated from the plan."""
    lines = [f"- Round {record.round}: {safe_cell(note)}" for record in records for note in record.notes]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _number(value: float | None, key: str) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.0f}" if key in COUNTS else f"{value:.4f}"
