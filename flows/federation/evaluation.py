"""The evaluation of a round: the shared model in one task, the clients in chunks, in parallel."""

from collections.abc import Mapping

from flows.engine.engines import Engine
from tasks.core.context import RunContext
from tasks.core.federation_settings import FederationSettings
from tasks.core.records import RoundRecord
from tasks.evaluation.client_summary import Result, summarise
from tasks.evaluation.protocols import chunks


def evaluate_round(
    engine: Engine,
    context: RunContext,
    settings: FederationSettings,
    record: RoundRecord,
    sizes: Mapping[str, int],
) -> None:
    """Evaluate a round's models by the run's protocols and store the result in its record.

    Args:
        engine: Where tasks run.
        context: The run.
        settings: How many tasks run at once.
        record: The round.
        sizes: Client -> number of training images, the weights of a mean over the clients' own models.
    """
    shared = engine.run("evaluate", f"round {record.round}: evaluate", context, record.state)
    parts = chunks(shared.get("clients", []), settings.workers, settings.clients_per_task or 1)
    calls = [
        (
            f"round {record.round}: evaluate clients, {', '.join(part)}",
            (context, record.state, part, shared.get("logits")),
        )
        for part in parts
    ]
    results: dict[str, Result] = {}
    for outcome in engine.map("evaluate-own-models", calls) if calls else []:
        if outcome.error is not None:
            raise outcome.error
        results |= outcome.value
    found = summarise(context, shared, results, sizes)
    record.metrics, record.per_class = found["metrics"], found.get("per_class", {})
    record.per_site, record.per_client = found.get("per_site", {}), found["per_client"]
    record.confusion = found.get("confusion", [])
