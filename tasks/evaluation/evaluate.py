"""Evaluate a round's models by the protocols of the run (docs/evaluation.md).

The shared model is evaluated by one task on the pooled images. Chunks of clients are evaluated in parallel: with their
own models or the shared one, on the images of the other protocols.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.data.run_data import load_run_data
from tasks.evaluation.client_summary import summarise
from tasks.evaluation.evaluator import Evaluator
from tasks.evaluation.mixing_similarity import mixing_metrics
from tasks.evaluation.protocols import client_rows, clients_to_evaluate, has_shared_model, new_clients

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.records import ModelRef
    from tasks.core.round_state import RoundState
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset


def evaluate_model(
    context: "RunContext", state: "RoundState", sizes: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Evaluate a round's models, all in this process.

    Args:
        context: The run.
        state: Its models.
        sizes: Client -> weight in the mean over own models; by default the number of its training images.

    Returns:
        ``metrics``: of the pooled test images by the shared model or, where clients have their own models, the mean
        over them; with prefix ``val_`` of the validation images; ``<protocol>/`` for distributions over clients,
        ``chance/`` for chance levels, ``interval/`` for intervals, ``site_mean/`` for means over sites. ``per_class``
        and ``per_site``: of the test set; ``train_images`` is the number of the site's images that clients train on.
        ``per_client``: client -> ``<protocol>/<metric>``. ``confusion``: images of the test set by class and predicted
        class, for single labels and a shared model.

    Raises:
        UserError: The weights do not fit the network, or a client has no model.
    """
    shared = evaluate_shared(context, state)
    return summarise(context, shared, evaluate_clients(context, state, shared["clients"], shared["logits"]), sizes)


def evaluate_shared(context: "RunContext", state: "RoundState") -> dict[str, Any]:
    """Evaluate the shared model on the pooled test and validation images, unless clients have their own models.

    Returns:
        ``metrics``, ``per_class``, ``per_site`` and ``confusion``, if there is a shared model and the protocol global;
        ``clients``: those that are to be evaluated; ``logits``: reference of the shared model's logits of the pooled
        images that every chunk of them needs, or ``None``; ``mixing``: metrics of the weights between clients.
    """
    from tasks.core.network import build_network

    dataset, clients = load_run_data(context)
    own, protocols = state.personalised, context.evaluation.protocols
    assert set(own) <= set(clients.ids), f"models of unknown clients: {own}"
    out: dict[str, Any] = {"clients": clients_to_evaluate(context, state, dataset, clients), "logits": None}
    out["mixing"] = mixing_metrics(context, state, dataset, clients)
    pooled = "global" in protocols and not own
    with_shared = has_shared_model(state) and set(out["clients"]) - set(own)
    used = {"test": "matched" in protocols, "val": context.evaluation.thresholds == "per_class"}
    splits = [split for split, needed in used.items() if needed and with_shared]
    if pooled or splits:
        model = build_network(context, context.open_store(), state.evaluated_model or state.global_model)
        evaluator = Evaluator(context, model, dataset, clients)
        out |= evaluator.pooled() if pooled else {}
        out["logits"] = _store_logits(evaluator, state, splits) if splits else None
    return out


def _store_logits(evaluator: Evaluator, state: "RoundState", splits: Sequence[str]) -> "ModelRef":
    """Store the logits of pooled images beside the updates, which are deleted after the round."""
    import torch

    found = {split: torch.from_numpy(evaluator.logits_of(evaluator.dataset.indices(split))) for split in splits}
    return evaluator.context.open_store().put_state(f"updates/logits-{state.digest[:32]}.safetensors", found)


def evaluate_clients(
    context: "RunContext", state: "RoundState", clients: Sequence[str], logits: "ModelRef | None" = None
) -> dict[str, dict[str, Any]]:
    """Evaluate some clients' models.

    Args:
        context: The run.
        state: The round's models.
        clients: The clients.
        logits: The shared model's logits of pooled images, by split, if they are known.

    Returns:
        Client -> ``row``: its ``<protocol>/<metric>``; and, for an own model and the protocol global, ``pooled``: its
        metrics and tables on the pooled images.
    """
    dataset, everyone = load_run_data(context)
    held, own = new_clients(context, everyone), set(state.personalised)
    with_pooled = own if "global" in context.evaluation.protocols else set()
    results: dict[str, dict[str, Any]] = {}
    evaluator, key, pooled = None, None, None
    for client in clients:
        name = _model_name(state, client, own)
        if evaluator is None or name != key:
            evaluator, key, pooled = _evaluator_of(context, state, client, dataset, everyone, own, logits), name, None
        row = {
            f"{protocol}/{metric}": value
            for protocol, rows in client_rows(context, dataset, everyone, client, held).items()
            for metric, value in evaluator.row(rows, client).items()
        }
        results[client] = {"row": row}
        if client in with_pooled:
            pooled = pooled or evaluator.pooled()
            row |= {f"global/{metric}": pooled["metrics"][metric] for metric in evaluator.set.client
                    if metric in pooled["metrics"]}  # fmt: skip
            results[client]["pooled"] = pooled
    return results


def _model_name(state: "RoundState", client: str, own: set[str]) -> tuple[str, str]:
    """Return what identifies a client's model: its name, and the client where tensors of it are the client's own."""
    if client not in own:
        return "", ""
    return state.own.get(client, ""), client if state.own_model(client)[1] else ""


def _evaluator_of(
    context: "RunContext",
    state: "RoundState",
    client: str,
    dataset: "Dataset",
    clients: "Clients",
    own: set[str],
    logits: "ModelRef | None",
) -> Evaluator:
    """Return the evaluator of a client's model: its own one, or the shared model as it is evaluated."""
    from tasks.core.network import build_network, with_personal

    store = context.open_store()
    shared = state.evaluated_model if client not in own else None
    ref, overlays = (shared, ()) if shared is not None else state.own_model(client)
    model = build_network(context, store, ref)
    for overlay in overlays:
        with_personal(model, store, overlay)
    evaluator = Evaluator(context, model, dataset, clients)
    if client not in own and logits is not None:
        for split, known in store.get_state(logits).items():
            evaluator.know(dataset.indices(split), known.numpy())
    return evaluator
