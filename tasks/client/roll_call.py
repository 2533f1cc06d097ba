"""A client's answer to the roll call before training: it opens its data."""

from typing import TYPE_CHECKING

from tasks.client.local_data import local_data

if TYPE_CHECKING:
    from tasks.core.context import RunContext


def answer_roll_call(context: "RunContext", client: str) -> int:
    """Open a client's data as its training does, read an image, and return the number of its training images.

    Raises:
        UserError: If the partition does not know the client, or the data cannot be read.
    """
    data = local_data(context, client)
    for images in (data.images, data.unlabelled):
        images[:1]
    return data.count("both")
