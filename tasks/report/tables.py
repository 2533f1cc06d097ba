"""The tables of a report: rounds, classes, sites, clients, clusters, dropped clients, notes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tasks.core.metric_titles import TITLES
from tasks.core.names import visible_name
from tasks.core.problem import primary_metric
from tasks.core.records import RoundRecord
from tasks.core.round_summary import protocol_quality, protocols_of
from tasks.data.partition.participation import TRAINED_ON
from tasks.evaluation.chance_comparison import HEADS, comparison_rows, warnings
from tasks.plotting.markdown import markdown_table, safe_cell
from tasks.report.client_rounds import CSV
from tasks.report.round_table import NONE, columns_of, round_row, shown_row

COLUMNS_NOTE = (
    "MB down counts a model that a client receives several times once. Worst decile: mean loss of the worst decile "
    "of the clients."
)
_CHANCE_NOTES = {
    "macro_ap": "Chance level: labels' shares in the training images as scores (AP, loss), or the same most frequent "
    "labels predicted for every image (F1).",
    "accuracy": "Chance level: the classes' shares in the training images as scores of every image, so that the most "
    "frequent class is predicted.",
}
COUNTS = ("support", "images", "classes_used", "count", TRAINED_ON)
MAX_CLIENTS = 100  # rows of the table of clients
_PROTOCOL_NOTES = {
    "local": "each client's model on the client's own test images",
    "matched": "each client's model on test images drawn like the labels of its training images",
    "global": "each client's own model on the pooled test set",
    "new_clients": "the global model on the images of clients that never take part",
}
STATISTICS = (
    "mean", "weighted_mean", "std", "population_std", "p10", "worst_decile", "worst", "best", "min", "max", "count",
)  # fmt: skip
_STATISTICS_NOTE = (
    "weighted_mean: by the number of test images; std: divisor n - 1; p10: the 10th percentile counted from the worst "
    "client; worst_decile: mean of the worst tenth; count: clients that have a value."
)


def rounds_section(records: Sequence[RoundRecord]) -> str:
    """Return the table of rounds."""
    columns = columns_of(records)
    rows = [shown_row(round_row(record), columns) for record in records]
    table = markdown_table([title for _, title, _ in columns], rows)
    return f"## Rounds\n\n{table}\n\n{COLUMNS_NOTE}"


def metrics_section(record: RoundRecord) -> str:
    """Return the test metrics with their chance levels and intervals, and warnings."""
    rows = comparison_rows(record.metrics)
    if not rows:
        return ""
    parts = [
        f"## Test metrics, round {record.round}",
        markdown_table(list(HEADS), rows),
        f"{_CHANCE_NOTES[primary_metric(record.metrics)]} The interval comes from resampled test images; two training "
        "runs may differ by more.",
        "\n".join(f"- **Note:** {line}." for line in warnings(record.metrics)),
    ]
    return "\n\n".join(part for part in parts if part)


def sites_section(record: RoundRecord) -> str:
    """Return the table of sites; sites on which no client trains are in a separate table."""
    trained = {site: row for site, row in record.per_site.items() if row.get(TRAINED_ON, 1)}
    unseen = {site: row for site, row in record.per_site.items() if site not in trained}
    parts = [breakdown("Sites", trained, record)]
    if unseen:
        parts += [
            breakdown("Sites that take no part", unseen, record),
            "No client trains on an image of these sites: their metrics show how the model performs on a new site.",
        ]
        metric = primary_metric(record.metrics)
        means = {kind: record.metrics.get(f"site_mean/{kind}/{metric}") for kind in ("trained", "never_trained")}
        if None not in means.values():
            parts.append(
                f"Mean {TITLES[metric]}: {_number(means['trained'], '')} over sites that train, "
                f"{_number(means['never_trained'], '')} over the others."
            )
    return "\n\n".join(part for part in parts if part)


def breakdown(title: str, table: Mapping[str, Mapping[str, float]], record: RoundRecord) -> str:
    """Return a table with a row per class, site or client; "" if there are none."""
    if not table:
        return ""
    keys = list(dict.fromkeys(key for cells in table.values() for key in cells))
    rows = [[visible_name(name), *(_number(cells.get(key), key) for key in keys)] for name, cells in table.items()]
    return f"## {title}, round {record.round}\n\n" + markdown_table(["name", *keys], rows)


def _ordered(metrics: Iterable[str]) -> list[str]:
    """Order metrics for a table: those with a title first, in their order, then the others by name."""
    known = list(TITLES)
    return sorted(metrics, key=lambda name: (known.index(name) if name in known else len(known), name))


def classes_section(record: RoundRecord, zero_support: str) -> str:
    """Return the table of classes, and name the classes without a positive test image."""
    absent = [name for name, cells in record.per_class.items() if cells.get("support") == 0]
    if not absent:
        return breakdown("Classes", record.per_class, record)
    if "ap" not in record.per_class[absent[0]]:
        counted = "excluded from" if zero_support == "exclude" else "counted as 0 in"
        names = ", ".join(safe_cell(visible_name(name)) for name in absent)
        note = f"Without a test image: {names}. They are {counted} macro precision, recall and F1."
        return f"{breakdown('Classes', record.per_class, record)}\n\n{note}"
    become = {
        "exclude": "They are excluded from every macro mean",
        "zero": "They count as 0 in every macro mean",
        "zero_f1": "They are excluded from macro-AP, and count as 0 in macro precision, recall and F1",
    }[zero_support]
    names = ", ".join(safe_cell(visible_name(name)) for name in absent)
    note = f"Without a positive test image, and so without AP: {names}. {become}."
    return f"{breakdown('Classes', record.per_class, record)}\n\n{note}"


def clients_section(record: RoundRecord) -> str:
    """Return the distribution of metrics over clients, and a row per client, the worst first."""
    if not record.per_client:
        return ""
    parts = [_protocol_section(record, protocol) for protocol in protocols_of(record)]
    distributions: dict[str, dict[str, float]] = defaultdict(dict)
    for name, value in record.metrics.items():
        protocol, _, rest = name.partition("/")
        metric, _, key = rest.partition("/")
        if protocol in _PROTOCOL_NOTES and key in STATISTICS:
            distributions[f"{protocol}/{metric}"][key] = value
    keys = [key for key in STATISTICS if any(key in cells for cells in distributions.values())]
    rows = [[metric, *(_number(cells.get(key), key) for key in keys)] for metric, cells in distributions.items()]
    if rows:
        table = markdown_table(["over clients", *keys], rows)
        parts.append(f"## Distributions over clients, round {record.round}\n\n{table}\n\n{_STATISTICS_NOTE}")
    return "\n\n".join(part for part in parts if part)


def _protocol_section(record: RoundRecord, protocol: str) -> str:
    """Return a row per client that a protocol evaluated, the worst first."""
    prefix = f"{protocol}/"
    table = {}
    for client, row in record.per_client.items():
        names = _ordered(name.removeprefix(prefix) for name in row if name.startswith(prefix))
        table[client] = {name: row[prefix + name] for name in names}
    quality = protocol_quality(record, protocol)
    evaluated = sorted(
        (client for client, row in table.items() if row), key=lambda client: (quality.get(client, math.inf), client)
    )
    shown = {client: table[client] for client in evaluated[:MAX_CLIENTS]}
    hidden = len(evaluated) - len(shown)
    more = f" {hidden} more clients are not shown; {CSV} has all." if hidden else ""
    note = _PROTOCOL_NOTES[protocol]
    return f"{breakdown(f'Clients, {protocol}', shown, record)}\n\n{note[0].upper()}{note[1:]}.{more}"


def clusters_section(records: Sequence[RoundRecord]) -> str:
    """Return the clusters and their clients in the last round that has clusters."""
    record = next((record for record in reversed(records) if record.state.cluster_of), None)
    if record is None:
        return ""
    members: dict[int, list[str]] = defaultdict(list)
    for client, group in sorted(record.state.cluster_of.items()):
        members[group].append(visible_name(client))
    rows = [[str(group), str(len(clients)), ", ".join(clients)] for group, clients in sorted(members.items())]
    return f"## Clusters, round {record.round}\n\n" + markdown_table(["cluster", "clients", "names"], rows)


def dropped_section(records: Sequence[RoundRecord]) -> str:
    """Return the table of dropped clients with reasons and rounds."""
    cases: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for record in records:
        for entry in record.dropped:
            cases[entry.client, entry.stage, entry.reason].append(record.round)
    if not cases:
        return "## Dropped clients\n\nNone: every selected client completed its rounds."
    rows = [
        [visible_name(client), str(stage), reason, str(len(rounds)), ", ".join(map(str, rounds))]
        for (client, stage, reason), rounds in sorted(cases.items())
    ]
    return "## Dropped clients\n\n" + markdown_table(["client", "stage", "reason", "times", "rounds"], rows)


def notes_section(records: Sequence[RoundRecord]) -> str:
    """Return the notes of all rounds."""
    lines = [f"- Round {record.round}: {safe_cell(note)}" for record in records for note in record.notes]
    return "## Notes\n\n" + "\n".join(lines) if lines else ""


def _number(value: float | None, key: str) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.0f}" if key.rpartition("/")[2] in COUNTS else f"{value:.4f}"
