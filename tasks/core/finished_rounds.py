"""Finished rounds: ``rounds/NNNN/`` with the shared models, the server's tensors and ``round.json``.

A folder is there whole or not at all. What belongs to one client is in ``clients/``, of the last round only.
"""

from dataclasses import replace

from models.errors import UserError
from tasks.core.names import file_name
from tasks.core.records import ModelRef, RoundRecord, Update, read_round
from tasks.core.round_state import GLOBAL, kept_for
from tasks.core.store import Store, client_folder


def folder_of(number: int) -> str:
    """Name of a round's folder, ``rounds/0001`` for the first."""
    return f"rounds/{number:04d}"


def save_round(store_root: str, record: RoundRecord) -> RoundRecord:
    """Write a round to a temporary folder and rename it. A round that exists already is returned.

    Args:
        store_root: Root of the run's store.
        record: The round; its models may lie anywhere in the store.

    Returns:
        The record with the models' final places.
    """
    store, final = Store(store_root), folder_of(record.round)
    if store.exists(f"{final}/round.json"):
        return load_round(store, record.round)
    working = f"rounds/.{record.round:04d}.partial"
    store.delete(working)

    def place(name: str, ref: ModelRef) -> ModelRef:
        store.put_state(f"{working}/{name}", store.get_state(ref), ref.digest)
        return replace(ref, uri=f"{final}/{name}")

    def place_model(name: str, ref: ModelRef) -> ModelRef:
        own = kept_for(name)
        if own is None:
            return place("model.safetensors" if name == GLOBAL else f"model-{_file(name)}", ref)
        kind, client = own
        folder = client_folder(client)  # there only the last round's is kept
        return (
            ref
            if ref.uri.startswith(f"{folder}/")
            else store.put_state(f"{folder}/{kind}-{record.round:04d}.safetensors", store.get_state(ref), ref.digest)
        )

    state = replace(
        record.state,
        models={name: place_model(name, ref) for name, ref in record.state.models.items()},
        server={name: place(f"server-{_file(name)}", ref) for name, ref in record.state.server.items()},
    )
    updates = {stage: [_without_file(update) for update in updates] for stage, updates in record.updates.items()}
    saved = replace(record, state=state, updates=updates)
    store.write_json(f"{working}/round.json", saved.as_dict())
    store.finish_folder(working, final)
    return saved


def _file(name: str) -> str:
    return f"{file_name(name.replace('/', '-'))}.safetensors"


def rescore_round(store_root: str, record: RoundRecord) -> RoundRecord:
    """Write the record of a finished round whose model was evaluated later; its models do not change."""
    Store(store_root).write_json(f"{folder_of(record.round)}/round.json", record.as_dict())
    return record


def _without_file(update: Update) -> Update:
    """Return the update's record; its weights are removed with the round, so only their digest is kept."""
    return replace(update, model=replace(update.model, uri=""))


def load_round(store: Store, number: int) -> RoundRecord:
    """Load a finished round.

    Raises:
        UserError: If its record is missing or damaged.
    """
    name = f"{folder_of(number)}/round.json"
    value = store.read_json(name)
    try:
        return read_round(value, number)
    except ValueError as error:
        raise _damaged(store, number, f"{name}: {error}") from error


def _damaged(store: Store, number: int, found: str) -> UserError:
    folder = store.path(folder_of(number))
    hint = f"remove {folder} and later rounds, or the run's whole folder where clients keep a state; then run again"
    return UserError("a finished round is damaged", where=folder, found=found, hint=hint)


def finished_rounds(store: Store, most: int) -> list[RoundRecord]:
    """Return the finished rounds 1, 2, ... without a gap, up to ``most``, each with a model that verifies.

    Raises:
        UserError: If a finished round's model is damaged.
    """
    records = []
    for number in range(1, most + 1):
        if not store.exists(folder_of(number)):
            break
        if not store.exists(f"{folder_of(number)}/round.json"):
            raise _damaged(store, number, "no round.json")
        record = load_round(store, number)
        for ref in _stored_with_round(record):
            if not store.holds(ref):
                raise _damaged(store, number, f"{ref.uri}: not the file with digest {ref.digest}")
        records.append(record)
    if records and not store.exists(folder_of(len(records) + 1)):  # newer rounds have replaced the states of older ones
        gone = [ref.uri for ref in records[-1].state.at_clients if not store.holds(ref)]
        if gone:
            raise _damaged(store, records[-1].round, f"tensors of clients are gone: {', '.join(gone[:5])}")
    return records


def clusters_by_round(store: Store, most: int = 1_000_000) -> dict[int, dict[str, int]]:
    """Return round -> client -> index of its cluster, of the finished rounds with clusters up to ``most``.

    A client that has not been in a cluster yet is left out; one that was absent keeps its last cluster.

    Raises:
        UserError: As ``finished_rounds``.
    """
    records = finished_rounds(store, most)
    return {record.round: dict(record.state.cluster_of) for record in records if record.state.cluster_of}


def _stored_with_round(record: RoundRecord) -> list[ModelRef]:
    shared = [ref for name, ref in record.state.models.items() if kept_for(name) is None]
    return [*shared, *record.state.server.values()]


def prune(store: Store, record: RoundRecord, best: RoundRecord | None = None) -> None:
    """Delete what only unfinished rounds need: updates, and client states that a newer one replaced.

    Args:
        store: The run's store.
        record: The last round.
        best: Another round whose clients' models stay, with their private and personal tensors.
    """
    store.delete("updates")
    keep = {ref.uri for kept in (record, best) if kept is not None for ref in kept.state.at_clients}
    for client in store.names("clients"):
        for name in store.names(f"clients/{client}"):
            if f"clients/{client}/{name}" not in keep:
                store.delete(f"clients/{client}/{name}")
