"""Whether a source can hold enough images for the clients that are asked for: told before any image is decoded."""

from flows.settings.schema import Settings
from models.errors import UserError

_SLACK = 2  # images by which a stratified split of a small set may differ from its shares


def check_enough(settings: Settings) -> None:
    """Refuse a source that lists too few images for ``partition.clients`` times ``partition.min_size``.

    Images are counted as they are listed, until there are enough; what decoding will refuse counts as well, so
    passing does not mean that there are enough. The scheme ``natural`` takes its clients from the sites and is not
    checked.

    Raises:
        UserError: There are too few, or the source cannot be read.
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
        return  # the ingest says what is missing
    most = int(share * listed) // clients
    raise UserError(
        "there are too few images for so many clients",
        where="partition.clients",
        expected=f"{needed} training images: {clients} clients of at least partition.min_size = {smallest}",
        found=f"{listed} images listed in {settings.ingest.path}, of which some {int(share * listed)} are for training",
        hint=f"--set partition.min_size={most}" if most else "lower partition.clients",
    )
