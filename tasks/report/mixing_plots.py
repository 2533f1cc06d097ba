"""Plots of personalised mixing in a report: weights between clients by layer and round, and who helps whom.

A matrix A [N, N] holds in row i the weights with which the clients' models make client i's; rows sum to 1.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from tasks.core.records import RoundRecord
from tasks.core.store import Store
from tasks.plotting.style import BLUE, INK, SKY, new_figure, one_line
from tasks.server.mixing_record import NAMESPACE, read_mixing

T = TypeVar("T")
Matrices = Mapping[str, np.ndarray]  # layer -> A
LAYERS, ROUNDS = 5, 4  # most rows and columns of the heat-maps
NAMED = 24  # more names of clients are illegible
HELPERS = 3  # arrows to each client
MIXING_TITLE, HELP_TITLE = "Weights between clients by layer and round", "Who helps whom"


def write_mixing_plots(store: Store, records: Sequence[RoundRecord], folder: Path) -> dict[str, Path]:
    """Write the plots of a run whose method mixes models for single clients; return title -> PNG file.

    Args:
        store: The run's store.
        records: Its rounds.
        folder: Where the files go.

    Raises:
        UserError: If the weights of a round are gone or damaged.
    """
    recorded = [record for record in records if NAMESPACE in record.state.server]
    if not recorded:
        return {}
    clients = sorted({client for record in records for client in record.participants})
    place = {client: index for index, client in enumerate(clients)}
    total, rounds = np.zeros((len(clients), len(clients))), np.zeros(len(clients))
    shown: dict[int, Matrices] = {record.round: {} for record in spread(recorded, ROUNDS)}
    for record in recorded:
        mixing = read_mixing(store, record.state)
        assert mixing is not None
        matrices, rows = mixing.square(clients), [place[client] for client in mixing.models]
        for matrix in matrices.values():
            total[rows] += matrix[rows] / len(matrices)
        rounds[rows] += 1
        if record.round in shown:
            shown[record.round] = {layer: matrices[layer] for layer in spread(list(matrices), LAYERS)}
    mean = np.where(rounds[:, None] > 0, total / np.maximum(rounds, 1)[:, None], np.eye(len(clients)))
    files = {MIXING_TITLE: folder / "mixing.png", HELP_TITLE: folder / "who-helps-whom.png"}
    mixing_heatmaps(shown, clients, files[MIXING_TITLE])
    help_graph(mean, clients, files[HELP_TITLE])
    return files


def mixing_heatmaps(by_round: Mapping[int, Matrices], clients: Sequence[str], path: Path) -> None:
    """Plot the weights between clients, a row of panels for each layer, a column for some rounds.

    Args:
        by_round: Round -> layer -> A [N, N]; of many rounds and layers a selection from first to last is shown.
        clients: The N clients in the order of rows and columns.
        path: The PNG file.
    """
    rounds = spread(sorted(by_round), ROUNDS)
    layers = spread(list(by_round[rounds[-1]]), LAYERS)
    shown = [by_round[number][layer] for number in rounds for layer in layers if layer in by_round[number]]
    top = max(float(matrix.max()) for matrix in shown)
    with new_figure(path, 0.9 + 2.1 * len(layers)) as figure:
        panels = figure.subplots(len(layers), len(rounds), squeeze=False, sharex=True, sharey=True)
        for row, layer in enumerate(layers):
            for column, number in enumerate(rounds):
                axes, matrix = panels[row, column], by_round[number].get(layer)
                axes.grid(visible=False)
                if row == 0:
                    axes.set_title(f"round {number}")
                if column == 0:
                    axes.set_ylabel(one_line(layer))
                    axes.set_yticks(*_ticks(clients), fontsize=6)
                if row == len(layers) - 1:
                    axes.set_xticks(*_ticks(clients), fontsize=6, rotation=90)
                if matrix is not None:
                    image = axes.imshow(matrix, cmap="Blues", vmin=0.0, vmax=top)
        figure.colorbar(image, ax=panels, shrink=0.6, label="weight of the column's client in the row's model")


def help_graph(mean: np.ndarray, clients: Sequence[str], path: Path) -> None:
    """Plot who helps whom: an arrow to each client from the three others with the largest weights in its model.

    Only weights above (1 - a_ii) / (N - 1), what others would have if they all counted alike, are drawn; width grows
    with the weight. The size of a client's dot is its own weight.

    Args:
        mean: A [N, N], the mean over layers and rounds.
        clients: The N clients.
        path: The PNG file.
    """
    count = len(clients)
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    with new_figure(path, 6.4) as figure:
        axes = figure.subplots()
        for helped, helper, weight in helpers(mean):
            style = {"arrowstyle": "-|>", "color": SKY, "linewidth": 0.4 + 6 * weight, "shrinkA": 7, "shrinkB": 9}
            curve = {"connectionstyle": "arc3,rad=0.12"}
            axes.annotate("", places[helped], places[helper], arrowprops=style | curve)
        axes.scatter(places[:, 0], places[:, 1], s=30 + 400 * np.diag(mean), color=BLUE, zorder=3)
        for place, client in zip(places, clients, strict=True):
            if count <= NAMED:
                axes.annotate(one_line(client, 16), 1.13 * place, ha="center", va="center", fontsize=8, color=INK)
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.25, 1.25), aspect="equal", title="Who helps whom")
        axes.axis("off")


def helpers(mean: np.ndarray) -> list[tuple[int, int, float]]:
    """Return (client, helper, weight): for each client the three others that weigh most, above the others' mean."""
    count, found = len(mean), []
    for client, row in enumerate(mean):
        others = sorted((other for other in range(count) if other != client), key=lambda other: -row[other])
        alike = (1 - row[client]) / max(1, count - 1)
        found += [(client, other, float(row[other])) for other in others[:HELPERS] if row[other] > (1 + 1e-6) * alike]
    return found


def spread(values: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of the values, evenly from the first to the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def _ticks(clients: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return positions and names of clients on an axis; of many every few."""
    every = max(1, math.ceil(len(clients) / NAMED))
    return np.arange(0, len(clients), every), [one_line(client, 14) for client in clients[::every]]
