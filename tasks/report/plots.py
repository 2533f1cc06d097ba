"""Plots of clients, clusters and traffic in a report, as PNG files 9 inches wide."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.core.metric_titles import TITLES
from tasks.core.records import RoundRecord
from tasks.core.round_summary import client_metric, protocol_quality, protocols_of
from tasks.core.summary_statistics import distribution
from tasks.plotting.boxes import draw_boxes
from tasks.plotting.style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    RED,
    SKY,
    integer_ticks,
    new_figure,
    one_line,
    span,
)

PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#8C6D31", "#5254A3", "#7F7F7F", "#BCBD22")


def client_bars(record: RoundRecord, path: Path) -> None:
    """Plot the primary metric of the clients by their first protocol, worst first, with mean and worst decile."""
    protocol = protocols_of(record)[0]
    quality = sorted(protocol_quality(record, protocol).items(), key=lambda item: (item[1], item[0]))
    values = [value for _, value in quality]
    found = distribution(values, low_is_worst=True)
    few = len(quality) <= 40  # more names are illegible
    with new_figure(path, 4.6 if few else 3.9) as figure:
        axes = figure.subplots()
        axes.bar(range(len(values)), values, 0.8 if few else 1.0, color=SKY)
        for key, label, colour, style in (
            ("mean", "mean", ORANGE, "--"),
            ("worst_decile", "mean of the worst decile", RED, ":"),
        ):
            axes.axhline(found[key], color=colour, linestyle=style, label=f"{label}, {found[key]:.3f}")
        if few:
            axes.set_xticks(
                range(len(quality)), [one_line(client, 14) for client, _ in quality], rotation=60, ha="right"
            )
            axes.tick_params(axis="x", length=0)
        absent = sum(f"{protocol}/{client_metric(record)}" in row for row in record.per_client.values()) - len(quality)
        without = f"; {absent} more without a positive test image" if absent else ""
        metric = f"{TITLES[client_metric(record)]}, {protocol}"
        axes.set(xlim=(-0.6, len(values) - 0.4), ylim=(0, 1.02), ylabel=metric)
        axes.set(title=f"Clients after round {record.round}", xlabel=f"{len(quality)} clients, worst first{without}")
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)


def protocol_boxes(record: RoundRecord, path: Path) -> None:
    """Plot the clients' primary metric by protocol: quartiles, median, mean (diamond), and the clients as points."""
    found = {protocol: list(protocol_quality(record, protocol).values()) for protocol in protocols_of(record)}
    found = {protocol: values for protocol, values in found.items() if values}
    with new_figure(path, 1.2 + 0.75 * len(found)) as figure:
        axes = figure.subplots()
        boxes = [(f"{name}, {len(values)} clients", values) for name, values in found.items()]
        draw_boxes(axes, boxes, [[SKY] * len(values) for _, values in boxes])
        axes.set(xlim=(0, 1.02), xlabel=TITLES[client_metric(record)], title=f"Protocols after round {record.round}")


def clusters_by_round(records: Sequence[RoundRecord], path: Path) -> None:
    """Plot the cluster of each client by round, a row per client. Grey: not in the round; a cross: dropped."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    clients = sorted({client for record in records for client in [*record.participants, *record.state.cluster_of]})
    row = {client: index for index, client in enumerate(clients)}
    grid = np.full((len(clients), len(records)), np.nan)
    lost: list[tuple[int, int]] = []
    for column, record in enumerate(records):
        for client, group in record.state.cluster_of.items():
            grid[row[client], column] = group
        lost += [(column, row[entry.client]) for entry in record.dropped if entry.client in row]
    count = int(np.nanmax(grid)) + 1 if np.isfinite(grid).any() else 0
    with new_figure(path, min(2.0 + 0.22 * len(clients), 14)) as figure:
        axes = figure.subplots()
        colours = ListedColormap(_colours(max(count, 1))).with_extremes(bad=PALE)
        axes.pcolormesh(
            np.ma.masked_invalid(grid),
            cmap=colours,
            vmin=-0.5,
            vmax=max(count, 1) - 0.5,
            edgecolors="white",
            linewidth=0.6,
        )
        if lost:
            axes.plot(*(np.array(lost).T + 0.5), "x", color=INK, markersize=6)
        every = max(1, math.ceil(len(clients) / 50))
        axes.set_yticks(np.arange(0, len(clients), every) + 0.5, [one_line(client) for client in clients[::every]])
        step = max(1, math.ceil(len(records) / 25))
        axes.set_xticks(np.arange(0, len(records), step) + 0.5, [str(record.round) for record in records[::step]])
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set(title="Clusters of clients", xlabel="round")
        keys: list[Any] = [Patch(color=colours(group), label=f"cluster {group}") for group in range(count)]
        keys.append(Patch(color=PALE, label="not in the round"))
        if lost:
            keys += axes.plot([], [], "x", color=INK, markersize=6, label="dropped")
        figure.legend(handles=keys, loc="outside lower center", ncols=6, frameon=False)


def traffic(records: Sequence[RoundRecord], budget: float | None, path: Path) -> None:
    """Plot bytes to and from the clients by round, stacked by stage; the line also counts repeated models.

    ``budget`` is that of a round, in MB, both ways together.
    """
    stages = list(dict.fromkeys(log.name for record in records for log in record.stages))
    rounds = np.array([record.round for record in records])
    colours = dict(zip(stages, _colours(len(stages)), strict=True))
    with new_figure(path, 3.9) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, key, title in zip(
            panels, ("bytes_down", "bytes_up"), ("To the clients", "From the clients"), strict=True
        ):
            floor = np.zeros(len(records))
            for stage in stages:
                sizes = np.array([_stage_bytes(record, key, stage) for record in records])
                if sizes.any():
                    axes.bar(rounds, sizes, 0.8, bottom=floor, color=colours[stage], label=one_line(stage))
                floor += sizes
            if key == "bytes_down":
                naive = [_stage_bytes(record, "bytes_down_naive") for record in records]
                axes.hlines(
                    naive,
                    rounds - 0.4,
                    rounds + 0.4,
                    color=INK,
                    linewidth=1.6,
                    label="with repeated models",
                )
            if budget is not None:
                axes.axhline(budget, color=INK, linestyle=":", label="budget of a round, both ways together")
            axes.set(title=title, xlabel="round", xlim=span(list(rounds)))
            integer_ticks(axes)
        panels[0].set_ylabel("MB")
        keys = {
            label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(keys.values(), keys.keys(), loc="outside lower center", ncols=5, frameon=False)


def _stage_bytes(record: RoundRecord, key: str, stage: str | None = None) -> float:
    return sum(getattr(log, key) for log in record.stages if stage in (None, log.name)) / 1e6


def _colours(count: int) -> list[Any]:
    if count <= len(PALETTE):
        return list(PALETTE[:count])
    import matplotlib as mpl

    return [mpl.colormaps["turbo"](value) for value in np.linspace(0.03, 0.97, count)]
