"""Validation of updates, data from outside: checked once, before aggregation (docs/algorithms/aggregation.md)."""

import math
from typing import TYPE_CHECKING

from models.errors import UserError
from tasks.core.names import visible
from tasks.core.records import Dropped, ModelRef, Update
from tasks.core.state_schema import Schema, read_schema
from tasks.core.store import Store, state_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from tasks.core.context import RunContext


def tensor_errors(state: "Mapping[str, Tensor]", template: "Mapping[str, Tensor]", schema: Schema) -> list[str]:
    """Return what is wrong with an update's tensors, compared with the model that was sent out.

    Args:
        state: The update's tensors.
        template: The start model's tensors.
        schema: What the tensors are, and which are never negative.

    Returns:
        One sentence per error: missing or extra names, shapes, dtypes, values that are not finite. Empty if valid.
    """
    from tasks.server.aggregation import all_finite

    found = [f"tensor {name} is missing" for name in sorted(template.keys() - state.keys())]
    found += [
        f"tensor {visible(name)[:80]} is not part of the model" for name in sorted(state.keys() - template.keys())
    ]
    for name in sorted(template.keys() & state.keys()):
        want, got = template[name], state[name]
        if want.shape != got.shape:
            found.append(f"tensor {name} has shape {tuple(got.shape)}, expected {tuple(want.shape)}")
        elif want.dtype != got.dtype:
            found.append(f"tensor {name} has dtype {got.dtype}, expected {want.dtype}")
        elif got.is_floating_point() and not all_finite(got):
            found.append(f"tensor {name} holds values that are not finite")
        elif name in schema and schema[name].nonnegative and bool((got < 0).any()):
            found.append(f"tensor {name} holds negative {'counts' if schema[name].kind == 'counter' else 'variances'}")
    return found


def update_errors(
    store: Store, update: Update, template: "Mapping[str, Tensor]", schema: Schema, size: int | None = None
) -> list[str]:
    """Return all errors of one update: its record first, then its tensors."""
    found = []
    if not isinstance(update.samples, int) or update.samples <= 0:
        found.append(f"it reports {update.samples!r} training images")
    elif size is not None and update.samples != size:
        found.append(f"it reports {update.samples} training images, the partition has {size}")
    if math.isinf(update.mean("classification")):  # NaN counts as not reported: eq 15 then falls back to sample counts
        found.append("its reported loss is infinite")
    try:
        state = store.get_state(update.model, verify=False)
    except UserError as error:
        return [*found, error.what]
    if state_digest(state) != update.model.digest:
        found.append("its tensors do not match the digest it was sent with")
    return found + tensor_errors(state, template, schema)


def check_updates(
    context: "RunContext",
    updates: "Sequence[Update]",
    start: ModelRef,
    stage: int,
    sizes: "Mapping[str, int] | None" = None,
    kept: "Mapping[str, tuple[str, ...]] | None" = None,
) -> tuple[list[Update], list[Dropped]]:
    """Split updates into valid ones and rejected ones, with the reason.

    Args:
        context: The run.
        updates: As received.
        start: A model that the server sent out; its tensors are the template.
        stage: The stage, for the record.
        sizes: Client id -> number of training images, as the server knows them; ``None``: not known.
        kept: Client id -> prefixes of the names of tensors that the client keeps and does not send.

    Returns:
        The valid updates in client-id order, and the rejected clients.
    """
    store = context.open_store()
    template, schema = store.get_state(start), read_schema(context)
    good, dropped = [], []
    for update in sorted(updates, key=lambda u: u.client):
        at_home = (kept or {}).get(update.client, ())
        sent = {name: value for name, value in template.items() if not (at_home and name.startswith(at_home))}
        wrong = update_errors(store, update, sent, schema, sizes.get(update.client) if sizes else None)
        if wrong:
            more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
            dropped.append(Dropped(update.client, stage, "; ".join(wrong[:3]) + more))
        else:
            good.append(update)
    return good, dropped
