"""What ``fedscene data show`` prints and writes: the distribution of images and labels over sites and clients.

The printed tables are short; ``heterogeneity.md`` next to the plots has the full ones.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.output import say
from models.errors import UserError
from tasks.core.names import file_name, visible_name

_MAX_SHEETS, _MAX_WINDOWS = 20, 5
_MAX_ROWS, _MAX_COLUMNS = 20, 8  # clients that a table shows individually: as rows, as columns
_SEED = 0  # of the sample images


def inspect_data(root: Path, sheets: Path, per_site: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Count the data set in ``root`` and write contact sheets and the sites' plots to ``sheets``.

    Args:
        root: Folder of ``dataset/`` and, if it was partitioned, ``clients/``; or, with several partitions, the folder
            of one of them next to the data set.
        sheets: Folder to write to; files of the same names are replaced.
        per_site: Images on a sheet.
        only: Sites that get a sheet; default: the 20 with the most images.

    Returns:
        ``sites``: ``heterogeneity.statistics`` by site, all splits; ``partition``: what ``clients.json``
        holds, or ``None``; ``sheets``: site -> file; ``figures``: folder of the sites' plots and tables;
        ``source_change``: how the source differs from what the data set was made from, "" if it does not.

    Raises:
        UserError: The data are missing or damaged, do not belong together, or have no such site.
    """
    from tasks.core.json_files import read_json
    from tasks.data.clients import load_clients, require_match
    from tasks.data.dataset import load_dataset
    from tasks.data.statistics.contact_sheet import sample_sheet
    from tasks.data.statistics.plots import FIGURES, write_partition_figures

    folder = root / "clients"
    if (root / "clients.json").is_file():
        root, folder = root.parent, root
    dataset = load_dataset(root / "dataset")
    clients = load_clients(folder) if folder.exists() else None
    if clients is not None:
        require_match(clients, dataset)
    sizes = Counter(dataset.sites.tolist())
    written = {site: sheets / f"{file_name(site)}.png" for site in _sites_with_sheets(sizes, only)}
    for site, path in written.items():
        sample_sheet(dataset, site, per_site, _SEED, path)
    figures = sheets / "by-site"
    figures.mkdir(parents=True, exist_ok=True)
    write_partition_figures(
        dataset.targets, dataset.sites, sorted(sizes), dataset.classes, figures, "site", annotated=dataset.annotated
    )
    return {
        "sites": read_json(figures / FIGURES, "fedscene data show"),
        "partition": None if clients is None else clients.summary,
        "sheets": {site: str(path) for site, path in written.items()},
        "figures": str(figures),
        "source_change": _source_change(root / "dataset"),
    }


def _sites_with_sheets(sizes: Mapping[str, int], only: Sequence[str]) -> Sequence[str]:
    """Return the named sites, or the largest ones; ``sizes``: site -> number of images."""
    if unknown := sorted(set(only) - set(sizes)):
        raise UserError(
            "no such site",
            where="--site",
            expected=", ".join(map(visible_name, sorted(sizes)[:20])),
            found=", ".join(map(visible_name, unknown)),
        )
    return only or sorted(sizes, key=lambda site: (-sizes[site], site))[:_MAX_SHEETS]


def _source_change(dataset: Path) -> str:
    """Return how the source has changed, by the settings of the data set; "" if those are of another release."""
    from pydantic import ValidationError

    from flows.run.prepare_data import source_change
    from tasks.core.json_files import read_json
    from tasks.data.dataset import SUMMARY
    from tasks.data.ingest.settings import IngestSettings

    try:
        made_with = IngestSettings.model_validate(read_json(dataset / SUMMARY, "").get("settings"))
    except ValidationError:
        return ""
    return source_change(made_with, dataset.parent)


def print_inspection(found: dict[str, Any], out: Console) -> None:
    """Print tables by client if there is a partition, and by site; then the written files."""
    partition, sites = found["partition"], found["sites"]
    if found["source_change"]:
        say(f"note: the source has changed since these data were made: {found['source_change']}", out)
    if partition is not None:
        show_differences(partition, "client", out)
    if partition is None or partition["scheme"] != "natural":
        show_differences(sites, "site", out, labels=partition is None)
    if len(found["sheets"]) < len(sites["clients"]):
        say(f"sheets of {len(found['sheets'])} of {len(sites['clients'])} sites (--site NAME for another):", out)
    for site, path in found["sheets"].items():
        say(f"sheet of {visible_name(site)}: {path}", out)
    say(f"by site, plots and full tables: {found['figures']}", out)


def show_differences(figures: dict[str, Any], what: str, out: Console, labels: bool = True) -> None:
    """Print sizes, effective classes and distances of clients or sites, and their images with each label.

    Args:
        figures: ``heterogeneity.statistics``, or a partition's summary, which contains them.
        what: ``client`` or ``site``.
        out: Console to print to.
        labels: Whether to print the table of labels as well.
    """
    from tasks.data.statistics.heterogeneity_table import difference_rows, heads, means

    owners = figures["clients"]
    rows = difference_rows(figures)
    if len(rows) > _MAX_ROWS:
        distances = [entry["js_distance"] or 0.0 for entry in owners.values()]
        far = sorted(range(len(rows)), key=lambda row: -distances[row])[:_MAX_ROWS]
        rows = [rows[row] for row in far]
        title = f"How the {what}s differ: the {_MAX_ROWS} of {len(owners)} with the most divergent labels"
    else:
        title = f"How the {what}s differ"
    _print_table(out, title, [what, *heads(figures)], rows)
    if labels:
        _print_labels(owners, what, out)
    for name, value in means(figures, what):
        say(f"{name}: {value}", out)


def _print_labels(owners: dict[str, Any], what: str, out: Console) -> None:
    """Print a row per label; a column per client, or, for many clients, summary columns."""
    names = list(next(iter(owners.values()))["labels"])
    if len(owners) <= _MAX_COLUMNS:
        heads = ["label", *(f"{visible_name(owner)} ({entry['images']})" for owner, entry in owners.items())]
        rows = [[visible_name(name), *(str(entry["labels"][name]) for entry in owners.values())] for name in names]
        _print_table(out, f"Images with each label, by {what}", heads, rows)
        return
    heads = ["label", "images", f"{what}s with it", "smallest share", "median share", "largest share", "where"]
    rows = []
    for name in names:
        shares = sorted((entry["prevalence"][name], owner) for owner, entry in owners.items())
        images = sum(entry["labels"][name] for entry in owners.values())
        some = sum(1 for share, _ in shares if share)
        median, (largest, where) = statistics.median(share for share, _ in shares), shares[-1]
        numbers = [str(images), str(some), f"{shares[0][0]:.3f}", f"{median:.3f}", f"{largest:.3f}"]
        rows.append([visible_name(name), *numbers, visible_name(where)])
    _print_table(out, f"Images with each label at {len(owners)} {what}s", heads, rows)


def _print_table(out: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; names come from outside, so nothing is read as markup."""
    tight = out.width < 100
    table = Table(title=Text(title, style="table.title"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.padding = (0, 0) if tight else (0, 1)
    for number, head in enumerate(heads):
        # In a narrow window a number may wrap, the name may not
        table.add_column(Text(head), justify="right" if number else "left", overflow="fold", no_wrap=not number)
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table)


def open_files(found: dict[str, Any], out: Console) -> None:
    """Open the sheets with the desktop's viewer, or their folder if there are more than five."""
    files = list(found["sheets"].values())
    for target in files if len(files) <= _MAX_WINDOWS else [str(Path(files[0]).parent)]:
        if typer.launch(target) != 0:
            say(f"no image viewer here; open {target} yourself", out)
            return
