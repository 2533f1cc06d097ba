"""Calling a Prefect flow: with a server that answers, with objects that Prefect must not store, and a plain error."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from flows.engine.interrupt import stopping_on_interrupt
from flows.engine.prefect_server import require_server
from models.errors import UserError
from tasks.client.stopping import stop_training
from tasks.registry import failed_state

if TYPE_CHECKING:
    from prefect import Flow

P = ParamSpec("P")
Result = TypeVar("Result")


@dataclass
class _Call:
    """One call of a flow by this program.

    Attributes:
        given: What the flow's body gets besides its parameters.
        refused: What the body refused.
    """

    given: Any = None
    refused: UserError | None = None


_call: ContextVar[_Call | None] = ContextVar("call of a flow", default=None)


def call_flow(flow: "Flow[..., Result]", title: str, given: Any = None, *, workers: int = 1) -> Result:
    """Call a flow; inside a running flow it becomes a subflow.

    Args:
        flow: The flow.
        title: Name of this run of it.
        given: What its body gets by ``given_to_flow``. Prefect stores parameters as JSON: a progress display cannot
            be stored, and settings may hold a password.
        workers: Tasks at the same time.

    Returns:
        What the flow returns.

    Raises:
        UserError: What the flow refused; Prefect has the flow run as failed with the same message.
    """
    require_server(flow.name)
    from prefect.task_runners import ThreadPoolTaskRunner

    runner: Any = ThreadPoolTaskRunner(max_workers=workers)
    call = _Call(given)
    token = _call.set(call)
    try:
        with stopping_on_interrupt():
            named = flow.with_options(flow_run_name=title, task_runner=runner)
            state: Any = cast(Any, named)(return_state=True)
    except Exception as error:
        if stop_training.is_set():  # Ctrl-C also ended the embedded server, and Prefect complains about that
            raise KeyboardInterrupt from error
        raise
    finally:
        _call.reset(token)
    if call.refused is not None:
        raise call.refused
    return cast(Result, state.result())  # raises what else went wrong


def given_to_flow() -> Any:
    """Return what ``call_flow`` gave to the flow that is running; ``None`` where a worker runs it."""
    call = _call.get()
    return None if call is None else call.given


def user_errors_fail_the_flow(body: Callable[P, Result]) -> Callable[P, Result]:
    """Make a flow end as failed with the message of a ``UserError``, instead of a traceback."""

    @wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return body(*args, **kwargs)
        except UserError as error:
            call = _call.get()
            if call is not None:
                call.refused = error
            return cast(Result, failed_state(error))

    return run
