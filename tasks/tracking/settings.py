"""Settings of MLflow tracking."""

from typing import Literal

from pydantic import Field, model_validator

from models.settings.section import Section


class TrackingSettings(Section):
    """What is logged to MLflow, and where."""

    enabled: bool = Field(default=True, description="Log rounds, metrics and models to MLflow.")
    uri: str | None = Field(
        default=None, description="Tracking URI: sqlite:///..., http(s)://... Unset: mlflow.db in the folder of runs."
    )
    experiment: str = Field(default="fedscene", min_length=1, description="Name of the MLflow experiment.")
    keep_rounds: int = Field(
        default=5, ge=1, description="Rounds whose weights stay in MLflow; the last and the best always stay."
    )
    log_models: bool = Field(default=True, description="Keep weights, and the last and best network as MLflow models.")
    site_models: Literal["none", "last", "best"] = Field(
        default="none",
        description="Log the model of each site as an MLflow model of its own, where sites have one: those of the last "
        "round, or of the best one. fedscene log-models does it later.",
    )
    timeout: float = Field(
        default=5.0, gt=0, le=120, description="Seconds in which a tracking server must answer at start."
    )

    @model_validator(mode="after")
    def _models_are_logged(self) -> "TrackingSettings":
        if self.site_models != "none" and not self.log_models:
            raise ValueError(f"site_models is {self.site_models}, and log_models false logs no model")
        return self
