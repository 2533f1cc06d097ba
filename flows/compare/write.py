"""A comparison as files, ``compare.md``, ``compare.json`` and ``clients.png``, and as a run in MLflow."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.compare.results import COSTS, Comparison, Figure, Group
from flows.engine.environment import runs_root
from models.files import remove, write_text
from tasks.core.json_files import to_json_values
from tasks.core.metric_titles import TITLES
from tasks.core.names import visible_name
from tasks.core.store import digest_of
from tasks.plotting.boxes import draw_boxes
from tasks.plotting.markdown import markdown_table, safe_cell
from tasks.plotting.style import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, new_figure, one_line
from tasks.report.round_table import NONE

if TYPE_CHECKING:
    from tasks.tracking.settings import TrackingSettings

PAGE, VALUES, PLOT = "compare.md", "compare.json", "clients.png"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#8C6D31", "#5254A3", "#7F7F7F", "#BCBD22")
MAX_CLIENTS = 100  # rows of the table of clients
Table = tuple[str, list[str], list[list[str]]]  # title, heads, rows


def tables(comparison: Comparison) -> list[Table]:
    """Return the tables of a comparison: settings that differ, metrics and cost, clients by protocol, each client."""
    names = [group.name for group in comparison.groups]
    settings = [[key, *map(_setting, values)] for key, values in comparison.differences.items()]
    found: list[Table] = [("Settings that differ", ["setting", *names], settings)] if settings else []
    found.append(_main_table(comparison))
    if comparison.protocols:
        found.append(_client_statistics(comparison))
        found += [table for protocol in comparison.protocols[:1] if (table := _clients(comparison, protocol))]
    return found


def _main_table(comparison: Comparison) -> Table:
    heads = ["method", "runs", "rounds", *(TITLES[name] for name in comparison.metrics), "MB down", "MB up", "seconds"]
    rows = [
        [
            group.name,
            str(len(group.runs)),
            ", ".join(map(str, group.rounds)),
            *(shown(group.metric(name)) for name in comparison.metrics),
            *(_cost(group, name) for name in COSTS),
        ]
        for group in comparison.groups
    ]
    return "Pooled test images, and cost of all rounds", heads, rows


def _client_statistics(comparison: Comparison) -> Table:
    shown_statistics = ("mean", "std", "worst_decile", "worst")
    rows = [
        [
            protocol,
            group.name,
            *(shown(comparison.statistic(group, protocol, name)) for name in shown_statistics),
            _count(comparison.statistic(group, protocol, "count")),
        ]
        for protocol in comparison.protocols
        for group in comparison.groups
        if math.isfinite(comparison.statistic(group, protocol, "mean")[0])
    ]
    heads = ["protocol", "method", "mean over clients", "std over clients", "worst decile", "worst client", "clients"]
    return f"{TITLES[comparison.metric]} over clients", heads, rows


def _clients(comparison: Comparison, protocol: str) -> Table | None:
    """Return a row for each client and a column for each row of the comparison."""
    columns = [group.clients(protocol) for group in comparison.groups]
    clients = sorted({client for column in columns for client in column})
    if not clients:
        return None
    rows = [
        [visible_name(client), *(shown((column.get(client, math.nan), None)) for column in columns)]
        for client in clients[:MAX_CLIENTS]
    ]
    more = f"; {len(clients) - MAX_CLIENTS} more in {VALUES}" if len(clients) > MAX_CLIENTS else ""
    title = f"{TITLES[comparison.metric]} of each client, {protocol}{more}"
    return title, ["client", *(group.name for group in comparison.groups)], rows


def shown(figure: Figure) -> str:
    """Return a mean with its standard deviation over the seeds if there are several."""
    mean, std = figure
    if not math.isfinite(mean):
        return NONE
    return f"{mean:.4f}" if std is None else f"{mean:.4f} +/- {std:.4f}"


def _cost(group: Group, name: str) -> str:
    mean, _ = group.cost(name)
    return f"{mean:.1f}" if name == "seconds" else f"{mean / 1e6:.2f}"


def _count(figure: Figure) -> str:
    return f"{figure[0]:g}" if math.isfinite(figure[0]) else NONE


def _setting(value: Any) -> str:
    return NONE if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def write_comparison(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the page, the values and the plot to a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    remove(folder / PLOT)  # of an earlier comparison
    plots = [folder / PLOT] if client_boxes(comparison, folder / PLOT) else []
    write_text(folder / PAGE, page(comparison, bool(plots)))
    text = json.dumps(to_json_values(comparison.as_dict()), indent=1, allow_nan=False)
    write_text(folder / VALUES, text + "\n")
    return [folder / PAGE, folder / VALUES, *plots]


def page(comparison: Comparison, with_plot: bool) -> str:
    """Return the comparison as Markdown."""
    several = any(len(group.runs) > 1 for group in comparison.groups)
    spread = " Mean +/- standard deviation over the seeds." if several else ""
    parts = [
        "# Comparison of runs",
        "Metrics are those of the last evaluated round. Where clients have models of their own, the pooled test images "
        f"give the mean over these models; `local` is each client's model on its own test images.{spread}",
        "\n".join(f"- **Note:** {safe_cell(note)}." for note in comparison.notes),
        *(f"## {safe_cell(title)}\n\n{markdown_table(heads, rows)}" for title, heads, rows in tables(comparison)),
        f"![{TITLES[comparison.metric]} of the clients by method]({PLOT})" if with_plot else "",
        "## Runs",
        markdown_table(
            ["method", "seed", "run"],
            [[group.name, str(run.seed), run.id] for group in comparison.groups for run in group.runs],
        ),
        _refused(comparison),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _refused(comparison: Comparison) -> str:
    if not comparison.refused:
        return ""
    return "## Not compared\n\n" + markdown_table(["run", "why"], [list(item) for item in comparison.refused.items()])


def client_boxes(comparison: Comparison, path: Path) -> bool:
    """Plot the clients' metric: a panel for each protocol, a box for each row, a point for each client.

    Up to ten clients have a colour each, the same in every box. Returns whether there was anything to plot.
    """
    panels = {}
    for protocol in comparison.protocols:
        rows = [(group.name, found) for group in comparison.groups if (found := group.clients(protocol))]
        if rows:
            panels[protocol] = rows
    if not panels:
        return False
    clients = sorted({client for rows in panels.values() for _, found in rows for client in found})
    few = len(clients) <= len(COLOURS)
    colour_of = {client: COLOURS[number] if few else SKY for number, client in enumerate(clients)}
    sizes = [len(rows) for rows in panels.values()]
    with new_figure(path, 1.0 + sum(0.8 + 0.45 * size for size in sizes)) as figure:
        found_axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[size + 1 for size in sizes]).ravel()
        for axes, (protocol, rows) in zip(found_axes, panels.items(), strict=True):
            boxes = [(one_line(name), list(found.values())) for name, found in rows]
            draw_boxes(axes, boxes, [[colour_of[client] for client in found] for _, found in rows])
            axes.set(title=f"Clients, {protocol}", xlabel=TITLES[comparison.metric])
        if few:
            _legend(figure, clients, colour_of)
    return True


def _legend(figure: Any, clients: Sequence[str], colour_of: dict[str, str]) -> None:
    from matplotlib.lines import Line2D

    keys = [
        Line2D([], [], marker="o", linestyle="", markersize=4, color=colour_of[client], label=one_line(client, 18))
        for client in clients
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=5, frameon=False)


def log_comparison(comparison: Comparison, settings: "TrackingSettings", files: Sequence[Path]) -> str:
    """Log a comparison as a run in MLflow, the same one for the same runs; return its id there.

    Args:
        comparison: The comparison.
        settings: Where the runs are tracked.
        files: Its files, which become artifacts in ``report/``.

    Raises:
        UserError: If MLflow cannot be used.
    """
    from tasks.tracking import mlflow_runs
    from tasks.tracking.availability import check_available
    from tasks.tracking.tags import RUN_TAG

    check_available(settings, runs_root())
    runs = [run.id for group in comparison.groups for run in group.runs]
    name = f"compare-{digest_of(sorted(runs))[:10]}"
    note = f"Comparison of {', '.join(group.name for group in comparison.groups)}. The page: Artifacts, report/."
    tags = {RUN_TAG: name, "mlflow.source.name": "fedscene", "mlflow.note.content": note}
    run_id = mlflow_runs.open_run(settings, runs_root(), name, {"runs": ", ".join(sorted(runs))}, tags)
    mlflow_runs.log_table(settings, runs_root(), run_id, comparison.numbers())
    mlflow_runs.finish_run(settings, runs_root(), run_id, "FINISHED", files)
    return run_id
