"""A paper's claims as comparisons between rows of our tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.papers.fidelity.evaluate_claims import Verdict, judge
from models.errors import UserError


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that our tables can test.

    Attributes:
        text: The claim.
        winner: The row that should be better.
        loser: The row that it is compared with.
        note: What must be known to read the comparison.
    """

    text: str
    winner: str
    loser: str
    note: str = ""


FMMAN_CLAIMS = (
    Claim("the label graph helps", "FMMAN", "FMMAN_without_graph"),
    Claim("the state mask helps", "FMMAN", "FMMAN_without_mask", "no states at all, the reading of the paper's row"),
    Claim(
        "clustering helps", "FMMAN", "FMMAN_without", "without stages 2 and 3, at equal local epochs; 6 clients, K = 3"
    ),
    Claim(
        "clustering helps",
        "FMMAN",
        "FMMAN_random_groups",
        "groups by lot, the second training kept; 6 clients, K = 3; on one drawn set",
    ),
    Claim("the contrast helps", "FMMAN", "FMMAN_without_contrastive"),
    Claim("FMMAN > FedLGT", "FMMAN", "FedLGT", "at equal local epochs"),
    Claim("FedLGT > C-Tran", "FedLGT", "FL-C_Tran"),
    Claim("C-Tran > AvgFL", "FL-C_Tran", "AvgFL-ResNet-18", "the same ResNet-18 under both"),
)


def figure(run: Mapping[str, Any], metric: str) -> float:
    """A run's metric at equal local epochs: after 2R rounds for single-stage rows, after R for the others."""
    at = run["at"].get("epochs") or run["at"]["rounds"]
    value = at["metrics"].get(metric)
    return math.nan if value is None else float(value)


def row_of(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The named row of a table's results.

    Raises:
        UserError: If the table has no such row.
    """
    for row in table["rows"]:
        if row["name"] == name:
            found: Mapping[str, Any] = row
            return found
    names = ", ".join(row["name"] for row in table["rows"])
    raise UserError("the table has no such row", where=table["table"], expected=names, found=name)


def compare(tables: Sequence[Mapping[str, Any]], claim: Claim, metric: str) -> Verdict:
    """The claim over the tables that have both rows: each seed of each table that both rows have is one pair."""
    winner: list[float] = []
    loser: list[float] = []
    for table in tables:
        if not {claim.winner, claim.loser} <= {row["name"] for row in table["rows"]}:
            continue
        first, second = ({run["seed"]: run for run in row_of(table, n)["runs"]} for n in (claim.winner, claim.loser))
        for seed in sorted(first.keys() & second.keys()):
            winner.append(figure(first[seed], metric))
            loser.append(figure(second[seed], metric))
    return judge(winner, loser)
