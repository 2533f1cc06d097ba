"""Check before decoding that a source lists enough images for the number of clients."""

from flows.settings.schema import Settings
from models.errors import UserError

_SLACK = 2  # images by which a stratified split of a small set may differ from its shares


def check_image_count(settings: Settings) -> None:
    """Refuse a source that lists too few images for ``partition.clients`` times ``partition.min_size``.

    Listed images are counted until there are enough. Images that decoding would refuse count as well, so this check
    may pass a source that is too small. The scheme ``natural`` takes its clients from the sites and is not checked.

    Raises:
        UserError: If there are too few, or the source cannot be read.
    """
    from tasks.data.ingest.reading import open_source

    clients, smallest = settings.partition.clients, settings.partition.min_size
    if clients is None or settings.ingest.source == "synthetic":
        return
    split = settings.ingest.split
    share = 1.0 if split.scheme == "given" else 1.0 - split.val - split.test
    needed, listed = clients * smallest, 0
    for sample in open_source(settings.ingest).read(settings.ingest, settings.seed):
        trained = split.scheme != "given" or sample.split in (None, "train")
        listed += sample.image is not None and sample.status in ("ok", "fixed") and trained
        if share * listed + _SLACK >= needed:
            return
    if not listed:
        return  # the ingest reports what is missing
    most = int(share * listed) // clients
    raise UserError(
        "too few images for this number of clients",
        where="partition.clients",
        expected=f"{needed} training images: {clients} clients of at least partition.min_size = {smallest}",
        found=f"{listed} images listed in {settings.ingest.path}, about {int(share * listed)} of them for training",
        hint=f"--set partition.min_size={most}" if most else "lower partition.clients",
    )
