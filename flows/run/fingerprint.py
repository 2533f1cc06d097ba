"""What identifies a run: its settings and data, and the code that can change its result."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tasks.core.source_digest import (
    PLUMBING,
    ROOT,
    closure,
    modules_named,
    normalised_entry,
    registry_entries,
    source_digest,
)
from tasks.core.store import digest_of

# Training, aggregation, randomness, evaluation and the initial model; the chosen parts come with what they import.
KERNEL = (
    "flows.federation.federation",
    "flows.federation.jobs",
    "tasks.client.train",
    "tasks.core.network",
    "tasks.core.randomness",
    "tasks.evaluation.evaluate",
    "tasks.server.aggregate",
    "tasks.server.aggregation",
    "tasks.server.initial_model",
    "models.build",
)
# Where tasks run, how settings are read, what is reported: none of it changes a number. Data enter by their digest.
SKIPPED = (
    *PLUMBING,
    "flows.engine",
    "flows.federation.progress",
    "flows.run",
    "flows.settings",
    "models.layers.probabilities",
    "tasks.data",
    "tasks.plotting",
    "tasks.registry",
    "tasks.report",
    "tasks.tracking",
    "tasks.versioning",
)
METHODS = ("flows.methods", "METHODS")
OBJECTIVES = ("tasks.client.objectives", "OBJECTIVES")
REGULARISERS = ("tasks.client.regularisers", "REGULARISERS")
NETWORKS = ("models.registry", "NETWORKS")
TASKS = ("tasks.registry", "TASKS")
AGGREGATORS = ("tasks.server.aggregators", "AGGREGATORS")
TRANSFORMS = ("tasks.core.update_transforms", "TRANSFORMS")
REGISTRIES = (METHODS, OBJECTIVES, REGULARISERS, NETWORKS, TASKS, AGGREGATORS, TRANSFORMS)


@dataclass(frozen=True)
class Parts:
    """What a run is made of, by the keys of the registries.

    Attributes:
        method: The federated algorithm.
        objective: The loss.
        network: The network.
        aggregator: The rule that combines updates.
        transforms: The update transforms in use.
    """

    method: str
    objective: str
    network: str
    aggregator: str = "mean"
    transforms: tuple[str, ...] = ()


def result_modules(parts: Parts, root: Path = ROOT) -> list[str]:
    """Return the modules that can change the result of a run of these parts; ``root`` is the sources' folder."""
    chosen = [(METHODS, parts.method), (OBJECTIVES, parts.objective), (NETWORKS, parts.network)]
    chosen += [(AGGREGATORS, parts.aggregator), *((TRANSFORMS, name) for name in parts.transforms)]
    seeds = {module for registry, key in chosen for module in modules_named(registry_entries(*registry, root)[key])}
    by_name = {
        key: modules_named(entry)
        for registry in (TASKS, REGULARISERS)
        for key, entry in registry_entries(*registry, root).items()
    }
    return closure(seeds | set(KERNEL), SKIPPED, root, by_name)


@cache
def code_digest(parts: Parts, root: Path = ROOT) -> str:
    """Return the digest of the code that can change the result of a run of these parts.

    Registries do not count but for the network's entry, so that a new method leaves every run valid.
    """
    registries = {module: (name,) for module, name in REGISTRIES}
    code = source_digest(result_modules(parts, root), registries, root)
    return digest_of(code, normalised_entry(registry_entries(*NETWORKS, root)[parts.network]))


@cache
def whole_code_digest(root: Path = ROOT) -> str:
    """Return one digest of the code behind the results of all methods, objectives and networks, for pages."""
    seeds = {
        module
        for registry in REGISTRIES
        for entry in registry_entries(*registry, root).values()
        for module in modules_named(entry)
    }
    return source_digest(closure(seeds | set(KERNEL), SKIPPED, root), root=root)


def fingerprint(parts: Parts, **values: Any) -> str:
    """Return the digest of all that decides a result: settings, seed, data, code and the torch release."""
    import torch

    return digest_of(values, code_digest(parts), str(torch.__version__))
