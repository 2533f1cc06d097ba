"""What every task of one run has in common: a small frozen record, passed to each task."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.problem import Problem, load_problem
from tasks.core.problem_kind import Kind
from tasks.core.records import ModelRef
from tasks.core.store import Store
from tasks.core.weighting_settings import WeightingSettings

if TYPE_CHECKING:
    from models.settings.model import ModelSettings
    from tasks.core.evaluation_settings import EvaluationSettings
    from tasks.core.train_settings import TrainSettings


@dataclass(frozen=True)
class RunContext:
    """The run as a task sees it.

    Attributes:
        store: Root of the run's store, a folder or an fsspec URL.
        dataset: Folder of the canonical data set.
        clients: Folder that says who holds which samples.
        seed: The run's seed.
        classes: The one label order.
        image_size: Side S of the images, pixels.
        tables: The frozen embeddings of labels and state words, ``None`` for networks without.
        model: Settings of the network.
        train: Settings of the local loop.
        objective: Name of the objective and its settings section.
        objective_settings: That section.
        bn_policy: What happens to BatchNorm statistics (docs/algorithms/aggregation.md).
        evaluation: How models are scored.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        precision: ``fp32`` or ``bf16`` (autocast, CUDA only).
        client_timeout_s: Longest time one client may train.
        fingerprint: Digest of all that decides a result; part of every output's name.
        data_digest: Digest of the partition, which names the data set's; "" to take whatever is there.
        kind: The kind of problem, ``multi_label`` or ``single_label``.
        aggregator: How updates are combined where the method leaves that to the settings.
        weighting: How much each client counts where the method leaves that to the settings.
        client_transforms: Settings of what is done to an update before it is sent, in order.
        server_transforms: Settings of what is done to each valid update before aggregation, in order.
        downlink_transforms: Settings of what compresses the models that clients are sent, in order.
    """

    store: str
    dataset: str
    clients: str
    seed: int
    classes: tuple[str, ...]
    image_size: int
    tables: ModelRef | None
    model: "ModelSettings"
    train: "TrainSettings"
    objective: str
    objective_settings: Any
    bn_policy: str
    evaluation: "EvaluationSettings"
    device: str = "cpu"
    precision: str = "fp32"
    client_timeout_s: float = 3600.0
    fingerprint: str = field(default="")
    data_digest: str = ""
    kind: Kind = "multi_label"
    aggregator: AggregatorSpec = field(default_factory=AggregatorSpec)
    weighting: WeightingSettings = field(default_factory=WeightingSettings)
    client_transforms: tuple[Any, ...] = ()
    server_transforms: tuple[Any, ...] = ()
    downlink_transforms: tuple[Any, ...] = ()

    @property
    def problem(self) -> Problem:
        """What the kind decides: probabilities, loss, predicted labels."""
        return load_problem(self.kind)

    def open_store(self) -> Store:
        """Open the run's store."""
        return Store(self.store)
