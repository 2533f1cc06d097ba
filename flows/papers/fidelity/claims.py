"""A paper's claims as comparisons between rows of our tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from flows.papers.fidelity.evaluate_claims import Verdict, compare_pairs
from flows.papers.replicate.results import TableReport


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that our tables can test.

    Attributes:
        text: The claim.
        winner: The row that should be better.
        loser: The row that it is compared with.
        note: A note for the reader.
    """

    text: str
    winner: str
    loser: str
    note: str = ""


FMMAN_CLAIMS = (
    Claim("the label graph helps", "FMMAN", "FMMAN_without_graph"),
    Claim(
        "the state mask helps",
        "FMMAN",
        "FMMAN_without_mask",
        "our interpretation of the paper's row: no label states",
    ),
    Claim(
        "clustering helps", "FMMAN", "FMMAN_without", "without stages 2 and 3, at equal local epochs; 6 clients, K = 3"
    ),
    Claim(
        "clustering helps",
        "FMMAN",
        "FMMAN_random_groups",
        "clusters at random, the second training kept; 6 clients, K = 3; on one synthetic set",
    ),
    Claim("the contrastive term helps", "FMMAN", "FMMAN_without_contrastive"),
    Claim("FMMAN > FedLGT", "FMMAN", "FedLGT", "at equal local epochs"),
    Claim("FedLGT > C-Tran", "FedLGT", "FL-C_Tran"),
    Claim("C-Tran > AvgFL", "FL-C_Tran", "AvgFL-ResNet-18", "the same ResNet-18 under both"),
)


def compare(tables: Sequence[TableReport], claim: Claim, metric: str) -> Verdict:
    """Compare a claim's two rows over the tables that have both; each seed of a table that both rows have is a pair.

    Rows are compared at equal local epochs.
    """
    winner: list[float] = []
    loser: list[float] = []
    for table in tables:
        if not {claim.winner, claim.loser} <= {row.name for row in table.rows}:
            continue
        first, second = ({run.seed: run for run in table.row(name).runs} for name in (claim.winner, claim.loser))
        for seed in sorted(first.keys() & second.keys()):
            winner.append(first[seed].at("epochs").value(metric))
            loser.append(second[seed].at("epochs").value(metric))
    return compare_pairs(winner, loser)
