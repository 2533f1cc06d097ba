"""Warnings on a run's data that a reader of its results should know."""

from flows.run.inputs import DataPaths


def data_warnings(data: DataPaths) -> list[str]:
    """Return warnings on unusable files, sites without training images, the partition, and small test sets.

    Raises:
        UserError: If the data are missing or damaged.
    """
    from tasks.data.clients import load_clients, partitioned
    from tasks.data.dataset import load_dataset
    from tasks.data.ingest.unusable_files import unusable, unusable_line
    from tasks.data.partition.participation import absent_sites_line, untrained_sites
    from tasks.evaluation.chance_comparison import warnings

    dataset, clients = load_dataset(data.dataset), load_clients(data.clients)
    dataset = partitioned(dataset, clients)
    absent = absent_sites_line(list(untrained_sites(dataset, clients)), len(set(dataset.sites.tolist())))
    sizes = {key: float(len(dataset.indices(split))) for key, split in (("images", "test"), ("val_images", "val"))}
    small = warnings({key: size for key, size in sizes.items() if size})
    without = [] if sizes["val_images"] else ["there are no validation images: the best round is chosen on test images"]
    return [
        *filter(None, [unusable_line(unusable(data.dataset)), absent]),
        *clients.summary.get("warnings", []),
        *small,
        *without,
    ]
