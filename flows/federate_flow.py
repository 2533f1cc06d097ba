"""The Prefect flow ``federate``. Imported for ``federation.engine: prefect`` only: a local run needs no Prefect."""

from prefect import flow

from flows.engine.flow_calls import call_flow, given_to_flow, user_errors_fail_the_flow
from flows.rounds import FederationJob, Summary, run_federation


@flow(name="federate", persist_result=False)
@user_errors_fail_the_flow
def federate_flow() -> Summary:
    """Train the rounds that are missing, then write the report.

    The body is the function that a local run calls. Its steps are the tasks of ``tasks/registry.py``: per round
    train-clients, aggregate, evaluate, save-round and track-round, then sample-predictions and report.
    """
    job: FederationJob = given_to_flow()
    return run_federation(job)


def run_federate_flow(job: FederationJob) -> Summary:
    """Run a federation as the flow ``federate``, with the job's settings for its name and its number of workers."""
    settings = job.settings
    title = f"{settings.federation.rounds} rounds of {settings.method.name} with {settings.model.name}"
    return call_flow(federate_flow, title, job, workers=settings.federation.workers)
