"""The end of a run in the terminal: the table of rounds, the scores and the paths of the results."""

from typing import Any

from flows.cli.output import console, print_json, say


def show_summary(summary: Any, as_json: bool) -> None:
    """Print the end of a run: the table of rounds, the scores and the paths of the results."""
    if as_json:
        print_json(summary.as_dict())
        return
    from tasks.report.round_table import round_table

    out = console(False)
    out.print(round_table(summary.records, out.width))
    show_scores(summary.records, out)
    if summary.stopped:
        say(f"ended after round {summary.rounds}: {summary.stopped}")
    say(f"digest of the final global model: {summary.digest}")
    if summary.mlflow_run_id:
        say(f"MLflow run: {summary.mlflow_run_id}  (open it: make ui)")
    say(f"results: {summary.report}")


def show_scores(records: Any, out: Any) -> None:
    """Print the scores of the last evaluated round with their chance levels, and warnings."""
    from rich.table import Table

    from tasks.core.round_summary import last_evaluated
    from tasks.evaluation.chance_comparison import HEADS, comparison_rows, warnings

    record = last_evaluated(records)
    rows = comparison_rows(record.metrics)
    if rows:
        table = Table(title=f"Scores, round {record.round}", title_justify="left")
        for number, head in enumerate(HEADS):
            table.add_column(head, justify="right" if 0 < number < 4 else "left")
        for row in rows:
            table.add_row(*row)
        out.print(table)
    for line in client_lines(record):
        say(line, out)
    for line in warnings(record.metrics):
        say(f"warning: {line}", out)


def client_lines(record: Any) -> list[str]:
    """Return a line for each protocol that compares clients: the mean over them, and the worst one by name."""
    from tasks.core.metric_titles import TITLES
    from tasks.core.names import visible_name
    from tasks.core.round_summary import client_metric, protocol_quality, protocols_of

    images = {"local": "own test images", "matched": "matched test images", "new_clients": "clients that never train"}
    lines = []
    for protocol in (name for name in protocols_of(record) if name in images):
        if found := protocol_quality(record, protocol):
            worst = min(sorted(found), key=found.__getitem__)
            mean = sum(found.values()) / len(found)
            lines.append(
                f"{images[protocol]} (protocol {protocol}), {TITLES[client_metric(record)]}: mean {mean:.3f} over "
                f"{len(found)} client{'s' if len(found) > 1 else ''}, worst {found[worst]:.3f} ({visible_name(worst)})"
            )
    return lines
