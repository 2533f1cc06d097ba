"""The federation's entry: a local run imports neither Prefect nor DVC; with Prefect it is the flow ``federate``."""

import subprocess
import sys

from tests.support.projects import ROOT


def test_importing_the_federation_imports_neither_prefect_nor_mlflow_nor_dvc():
    heavy = ["prefect", "mlflow", "dvc"]
    program = f"import sys, flows.federate; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_flow_shows_its_name_and_takes_no_parameters():
    """Parameters would be stored in Prefect's database, and settings may hold a password."""
    from flows.federate_flow import federate_flow

    assert federate_flow.name == "federate"
    assert federate_flow.parameters.properties == {}
    assert federate_flow.persist_result is False


def test_the_deployments_flow_takes_a_folder_and_overrides():
    from flows.pipeline import pipeline

    assert pipeline.name == "pipeline"
    assert list(pipeline.parameters.properties) == ["root", "overrides"]
    assert pipeline.persist_result is False
