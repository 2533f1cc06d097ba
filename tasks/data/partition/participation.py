"""Which sites take part in training, and which are only tested on."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.core.names import visible_name

if TYPE_CHECKING:
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset

TRAINED_ON = "train_images"  # a site's images that clients train on, in the table of sites
_MAX_NAMED = 8


def site_counts(dataset: "Dataset", clients: "Clients", without: Sequence[str] = ()) -> dict[str, int]:
    """Count per site the images that clients train on, labelled or not, or that the server holds; sites are sorted.

    The clients in ``without`` train on none.
    """
    rows = [clients.server, *(part.chosen("train") for name, part in clients.all_rows.items() if name not in without)]
    sites, counts = np.unique(dataset.sites[np.concatenate(rows)], return_counts=True)
    found = dict(zip(sites.tolist(), counts.tolist(), strict=True))
    return {site: found.get(site, 0) for site in sorted(set(dataset.sites.tolist()))}


def untrained_sites(dataset: "Dataset", clients: "Clients") -> dict[str, int]:
    """Count the images of each site on none of whose images a client trains."""
    return {
        site: int((dataset.sites == site).sum()) for site, count in site_counts(dataset, clients).items() if not count
    }


def site_means(per_site: Mapping[str, Mapping[str, float]], metric: str) -> dict[str, float]:
    """Average a metric over the sites that train and over those that do not, if both kinds exist.

    Args:
        per_site: Site -> its metrics and ``train_images``.
        metric: Its name, ``macro_ap`` or ``accuracy``.

    Returns:
        ``site_mean/trained/<metric>``, ``site_mean/never_trained/<metric>``, and ``.../sites``, the number
        of sites that have a value; nothing where all sites train, or none.
    """
    kinds = {"trained": True, "never_trained": False}
    split = {
        kind: [
            row[metric] for row in per_site.values() if bool(row[TRAINED_ON]) == trains and math.isfinite(row[metric])
        ]
        for kind, trains in kinds.items()
    }
    if not all(split.values()):
        return {}
    out: dict[str, float] = {}
    for kind, values in split.items():
        out |= {f"site_mean/{kind}/{metric}": float(np.mean(values)), f"site_mean/{kind}/sites": float(len(values))}
    return out


def absent_sites_line(sites: Sequence[str], of: int) -> str:
    """Describe the sites that take no part in one sentence; "" if there are none.

    Args:
        sites: Their names.
        of: Number of all sites.
    """
    if not sites:
        return ""
    more = f" and {len(sites) - _MAX_NAMED} more" if len(sites) > _MAX_NAMED else ""
    names = ", ".join(map(visible_name, sites[:_MAX_NAMED])) + more
    return (
        f"{len(sites)} of {of} sites take no part in training (no training images, or too few) and are only tested on: "
        f"{names}. Their metrics show how the model performs on sites it has never seen"
    )
