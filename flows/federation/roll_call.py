"""The roll call: before a run trains, each required client opens its data. ``roll_call.json`` keeps the answers."""

from collections.abc import Sequence
from typing import Any

from flows.engine.engines import Engine
from models.errors import UserError
from tasks.core.context import RunContext
from tasks.core.records import VERSION

FILE = "roll_call.json"


def call_roll(engine: Engine, context: RunContext, required: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Ask the required clients to open their data; write and return their answers.

    Returns:
        Client -> ``{"images": number of its training images}``.

    Raises:
        UserError: If one does not answer, or has no training images; nothing has been trained.
    """
    calls = [(f"roll call: {client}", (context, client)) for client in required]
    outcomes = engine.map("answer-roll-call", calls, timeout_s=context.client_timeout_s)
    answers: dict[str, dict[str, Any]] = {}
    for client, outcome in zip(required, outcomes, strict=True):
        if outcome.error is not None:
            answers[client] = {"error": f"{type(outcome.error).__name__}: {outcome.error}"}
        else:
            answers[client] = {"images": outcome.value} if outcome.value else {"error": "it has no training images"}
    context.open_store().write_json(FILE, {"version": VERSION, "clients": answers})
    failed = {client: answer["error"] for client, answer in answers.items() if "error" in answer}
    if failed:
        raise UserError(
            f"{len(failed)} of {len(required)} required clients did not answer the roll call",
            where="federation.required",
            expected=", ".join(required),
            found="; ".join(f"{client}: {error}" for client, error in failed.items()),
            hint="nothing was trained in this sitting: fix the cause and run again",
        )
    return answers
