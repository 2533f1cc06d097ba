"""FedCor: correlations between clients choose who trains (Tang et al., CVPR 2022; docs/algorithms/fedcor.md).

Every round all clients report the loss of the global model on their own images, so the pool must be small and fixed.
"""

from typing import TYPE_CHECKING

from flows.methods.fedcor_settings import ACCEPTS_WEIGHTING, Settings, check, check_clients, refreshes
from tasks.client.payload import Payload
from tasks.core.records import ModelRef, Update
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

__all__ = ["ACCEPTS_WEIGHTING", "DESCRIPTION", "Settings", "check", "run_round"]
DESCRIPTION = "FedCor: clients chosen by a Gaussian process over their losses (Tang et al., CVPR 2022)"
SERVER_STATE = "fedcor"


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Collect all clients' losses, select clients by the process (at first at random), train, average."""
    from tasks.server.fedcor import held_out_split, record_client_losses

    s: Settings = fed.method
    start, ids = state.global_model, sorted(fed.clients)
    check_clients(fed.settings.clients_per_round, len(ids))
    split = fed.server_task(held_out_split, ids, s.loss_on, name="find held-out images")
    if s.loss_on == "auto" and split == "train":
        fed.note("not every client has val images, so losses are of the training images")
    losses, title = client_losses(fed, start, split, "losses of the global model"), "record client losses"
    before, warm = state.server.get(SERVER_STATE), fed.number <= s.warmup + 1
    process = fed.server_task(record_client_losses, before, losses, fed.number, s.rank, warm, name=title)

    clients, process = (fed.sample(), process) if fed.number <= s.warmup else select(fed, process, start, split)
    state.server[SERVER_STATE] = process
    # All clients received the global model for its losses, so it is not sent again.
    updates = fed.train(clients, Payload.of(start, at_client=True), stage=1, name="local training")
    return state.with_global(fed.aggregate(updates, start, weights=client_weights(fed, updates), name="average"))


def select(fed: "Federation", process: ModelRef, start: ModelRef, split: str) -> tuple[list[str], ModelRef]:
    """Fit the process if the round calls for it; return the clients that it selects, and its new state."""
    from tasks.server.fedcor import fit_process, select_clients

    s: Settings = fed.method
    ids, first, name = sorted(fed.clients), fed.number == s.warmup + 1, "fit the Gaussian process"
    if first or refreshes(s, fed.number):
        losses = None if first else client_losses(fed, probe(fed, start), split, "losses after probing")
        options = {"steps": s.gp_steps if first else s.gp_steps_later, "lr": s.gp_lr, "gamma": s.gamma}
        options |= {"group_size": s.group_size, "normalise": s.normalise}
        # The record's round: the one that follows, or the previous one as in the paper's code, one round older.
        number = fed.number - 1 if s.refresh == "multiples" else fed.number
        process = fed.server_task(fit_process, process, losses, number, options, name=name)
    sizes, count = [fed.clients[client] for client in ids], check_clients(fed.sample_size(), len(ids))
    chosen, process = fed.server_task(select_clients, process, sizes, count, s.beta, name="select clients")
    return fed.choose([ids[k] for k in chosen]), process


def probe(fed: "Federation", start: ModelRef) -> ModelRef:
    """Do a probing round of random clients; return its model, which only shows how losses change together."""
    # The purpose is part of every seed: never changed.
    sampled = fed.draw("FedCor throw-away clients", check_clients(fed.settings.clients_per_round, len(fed.clients)))
    payload = Payload.of(start, at_client=True)
    updates = fed.train(sampled, payload, stage=2, name="probing training", commit=False)
    fed.note(f"probing round of {', '.join(sampled)}")
    return fed.average(updates, client_weights(fed, updates), name="probing average")


def client_weights(fed: "Federation", updates: list[Update]) -> list[float] | None:
    """Return equal weights, or ``None`` for sample counts, as ``aggregation`` says."""
    return None if fed.method.aggregation == "size" else [1 / len(updates)] * len(updates)


def client_losses(fed: "Federation", model: ModelRef, split: str, name: str) -> list[float]:
    """Return the model's loss at every client in id order, NaN where a client has no such images."""
    losses = fed.client_losses(model, name=name, split=split)
    if without := [client for client in sorted(losses) if not losses[client][1]]:
        fed.note(f"{name}: no {split} images at {', '.join(without)}, so this round is not recorded")
    return [losses[client][0] for client in sorted(losses)]
