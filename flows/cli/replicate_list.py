"""``fedscene replicate --list``: the shipped tables and benchmarks, their rows, and the images that they need."""

from typing import TYPE_CHECKING, Any

from flows.cli.output import print_json, say

if TYPE_CHECKING:
    from flows.papers.benchmark.schema import Benchmark
    from flows.papers.replicate.schema import Table


def list_tables(table: str | None, as_json: bool) -> None:
    """Show all tables with their rows, or one table's rows."""
    from flows.papers.benchmark.schema import is_benchmark, load_benchmark
    from flows.papers.replicate.tables import load_table, shipped

    names = [table] if table is not None else shipped()
    found = [load_benchmark(name) if is_benchmark(name) else load_table(name) for name in names]
    if as_json:
        print_json({entry.name: _values(entry) for entry in found})
        return
    from flows.papers.replicate.schema import Table

    for entry in found:
        if isinstance(entry, Table):
            _say_table(entry)
        else:
            _say_benchmark(entry)


def _values(entry: "Table | Benchmark") -> dict[str, Any]:
    values: dict[str, Any] = entry.model_dump(mode="json", include={"title", "source", "sources", "rows"})
    return values


def _say_table(table: "Table") -> None:
    say(f"{table.name}: {table.title}. {table.source}")
    for scale in table.scales:
        found = table.dataset(scale)
        needs = f" (needs --data with {found.needs.folder}/)" if found.needs else ""
        say(f"  {scale}: {found.title}{needs}")
    say(f"  rows: {', '.join(table.rows)}")


def _say_benchmark(benchmark: "Benchmark") -> None:
    say(f"{benchmark.name}: {benchmark.title}")
    for images in benchmark.images.values():
        folders = " or ".join(f"{variant.needs.folder}/" for variant in images.variants)
        say(f"  {images.title}{f' (needs --data with {folders})' if folders else ''}")
    for cell, about in benchmark.cells.items():
        rows = [
            f"{name}{' (not yet available)' if row.not_yet else ''}"
            for name, row in benchmark.rows.items()
            if row.cell == cell
        ]
        say(f"  {cell}, {about}: {', '.join(rows)}")
