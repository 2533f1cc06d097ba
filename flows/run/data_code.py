"""The code that decides data: which modules an ingest of one source and a partition depend on."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.core.source_digest import PLUMBING, ROOT, closure, modules_named, registry_entries, source_digest

if TYPE_CHECKING:
    from tasks.data.ingest.settings import IngestSettings

# Reports, plots and messages about data, and how files are written: none of it changes an image, a label or a client.
SKIPPED = (
    *PLUMBING,
    "tasks.data.ingest.audit",
    "tasks.data.ingest.audit_report",
    "tasks.data.statistics",
    "tasks.plotting",
)
FORMATS = ("tasks.data.formats", "FORMATS")
SETS = ("tasks.data.formats.synthetic.registry", "SETS")


def ingest_modules(source: str, synthetic_set: str | None = None, root: Path = ROOT) -> list[str]:
    """Return the modules that decide a data set.

    Args:
        source: Key of the formats.
        synthetic_set: Key of the synthetic sets, for that source.
        root: Folder of the sources.
    """
    seeds = {"tasks.data.ingest.ingest"} | modules_named(registry_entries(*FORMATS, root)[source])
    if synthetic_set is not None:
        seeds |= modules_named(registry_entries(*SETS, root)[synthetic_set])
    others = [f"tasks.data.formats.{name}" for name in registry_entries(*FORMATS, root) if name != source]
    return closure(seeds, [*SKIPPED, *others], root)


def partition_modules(root: Path = ROOT) -> list[str]:
    """Return the modules that decide who holds which images."""
    return closure(["tasks.data.partition.stage"], SKIPPED, root)


def ingest_code(settings: "IngestSettings", root: Path = ROOT) -> str:
    """Return the digest of the code that decides a data set of these settings; other formats do not count."""
    chosen = getattr(settings, settings.source).set if settings.source == "synthetic" else None
    return source_code(settings.source, chosen, root)


@cache
def source_code(source: str, synthetic_set: str | None, root: Path = ROOT) -> str:
    """Return the digest of the modules of ``ingest_modules``; registries do not count."""
    registries = {module: (name,) for module, name in (FORMATS, SETS)}
    return source_digest(ingest_modules(source, synthetic_set, root), registries, root)


@cache
def partition_code(root: Path = ROOT) -> str:
    """Return the digest of the code that decides a partition."""
    return source_digest(partition_modules(root), root=root)
