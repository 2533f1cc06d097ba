"""Cross-validation of the settings: method, network, loss and number of clients."""

from typing import TYPE_CHECKING, Any, Protocol

from flows.methods import METHODS, load_method
from flows.methods.facts import RunFacts
from models.registry import NETWORKS
from tasks.client.objectives import load_objective
from tasks.client.schedule import schedule_factor
from tasks.core.problem_kind import Kind
from tasks.server.aggregators import AGGREGATORS, load_aggregator

if TYPE_CHECKING:
    from models.settings.model import ModelSettings
    from tasks.core.evaluation_settings import EvaluationSettings
    from tasks.core.federation_settings import FederationSettings
    from tasks.core.train_settings import TrainSettings
    from tasks.data.ingest.settings import IngestSettings
    from tasks.data.partition import PartitionSettings
    from tasks.server.aggregators.settings import AggregationSettings


class RunSettings(Protocol):
    """The sections of the settings that are compared here."""

    @property
    def ingest(self) -> "IngestSettings":
        """How the source is read."""
        ...

    @property
    def partition(self) -> "PartitionSettings":
        """How images are assigned to clients."""
        ...

    @property
    def model(self) -> "ModelSettings":
        """The network."""
        ...

    @property
    def method(self) -> Any:
        """The federated algorithm and its settings."""
        ...

    @property
    def aggregation(self) -> "AggregationSettings":
        """How updates are combined."""
        ...

    @property
    def train(self) -> "TrainSettings":
        """Local training."""
        ...

    @property
    def federation(self) -> "FederationSettings":
        """Rounds, clients and device."""
        ...

    @property
    def evaluation(self) -> "EvaluationSettings":
        """How models are evaluated."""
        ...

    def objective_for(self, kind: Kind) -> str:
        """Return the objective in effect for a kind of problem."""
        ...


def check_consistency(settings: "RunSettings") -> None:
    """Refuse settings that contradict each other.

    Raises:
        ValueError: If loss and network or network and method do not fit, or there are too few clients.
        UserError: If the network cannot take images of this size.
    """
    model, method = settings.model.name, settings.method.name
    check_objective(settings, settings.ingest.problem_kind)
    check_evaluation(settings)
    if NETWORKS[model].personal != load_method(method).PERSONAL_TENSORS:
        fitting = [name for name in METHODS if NETWORKS[model].personal == load_method(name).PERSONAL_TENSORS]
        raise ValueError(
            f"model.name {model} and method.name {method} do not fit: a network whose clients have tensors of their "
            f"own needs a method that handles them, and the other way round; {model} fits {', '.join(fitting)}"
        )
    clients = settings.partition.clients
    if clients is not None and (settings.federation.clients_per_round or 0) > clients:
        raise ValueError(
            f"federation.clients_per_round {settings.federation.clients_per_round} is more than "
            f"partition.clients {clients}"
        )
    check_training(settings)
    settings.model.check_images(settings.ingest.image_size)
    check_aggregation(settings, clients)
    check_method(settings, clients)


def unused_aggregators(settings: "RunSettings") -> list[str]:
    """Return a line for each aggregator that is not chosen and has other settings than by default."""
    chosen, lines = settings.aggregation.name, []
    for name, block in settings.aggregation:
        if name in AGGREGATORS and name != chosen:
            default = type(block).model_validate({})
            changed = [f"aggregation.{name}.{key}" for key, value in block if value != getattr(default, key)]
            lines += [f"aggregation.name is {chosen}, so {', '.join(changed)} has no effect"] if changed else []
    return lines


def check_training(settings: "RunSettings") -> None:
    """Refuse a learning rate that is zero before the last round, and a crop that is wider than the images.

    Raises:
        ValueError: If training has one of the two.
    """
    schedule, last = settings.train.schedule, settings.federation.rounds
    if schedule_factor(schedule, last) <= 0:
        raise ValueError(
            f"the learning rate is zero in round {last}, the last of federation.rounds: train.schedule.rounds is "
            f"{schedule.rounds} and train.schedule.floor {schedule.floor:g}"
        )
    size, augment = settings.ingest.image_size, settings.train.augment
    if augment.crop == "pad" and augment.padding >= size:
        raise ValueError(f"train.augment.padding {augment.padding} is not below ingest.image_size {size}")


def check_evaluation(settings: "RunSettings") -> None:
    """Refuse to stop by a metric of the validation images that no protocol computes.

    Raises:
        ValueError: If ``federation.stop`` looks at one without the protocol global.
    """
    if settings.federation.stop.by_metric and "global" not in settings.evaluation.protocols:
        raise ValueError(
            "federation.stop looks at the validation images, which only the protocol global evaluates; found "
            f"evaluation.protocols {', '.join(settings.evaluation.protocols)}"
        )


def check_objective(settings: "RunSettings", kind: Kind) -> None:
    """Refuse an objective that does not fit the network or the kind of problem, and thresholds that the kind has not.

    Called when settings are read, for the kind that their source has by itself, and again when the data are known.

    Raises:
        ValueError: If it does not fit.
    """
    name, model, data = settings.objective_for(kind), settings.model.name, f"{kind.replace('_', '-')} data"
    if kind == "single_label" and settings.evaluation.thresholds == "per_class":
        raise ValueError(
            f"evaluation.thresholds per_class is not for {data} (ingest.kind), whose most probable class is predicted"
        )
    fitting = _objectives(model, kind)
    if not fitting:
        networks = ", ".join(other for other in NETWORKS if _objectives(other, kind))
        raise ValueError(f"model.name {model} cannot be trained on {data} (ingest.kind); these can: {networks}")
    if kind not in load_objective(name).KINDS:
        raise ValueError(
            f"objective.name {name} is not for {data} (ingest.kind); "
            f"model.name {model} can be trained on it with {', '.join(fitting)}"
        )
    if name not in fitting:
        raise ValueError(
            f"objective.name {name} does not fit model.name {model}, "
            f"which can be trained on {data} with {', '.join(fitting)}"
        )


def _objectives(model: str, kind: Kind) -> list[str]:
    """Return the objectives that a network can be trained with on a kind of data."""
    return [name for name in NETWORKS[model].objectives if kind in load_objective(name).KINDS]


def check_method(settings: "RunSettings", clients: int | None) -> None:
    """Refuse settings that the chosen method does not support.

    Args:
        settings: The settings of a run.
        clients: Number of clients of the partition; ``None`` while it is unknown.

    Raises:
        ValueError: If the method refuses them.
    """
    federation = settings.federation
    facts = RunFacts(
        settings.method.chosen,
        settings.model,
        settings.train,
        clients,
        federation.clients_per_round,
        federation.required,
        tuple(spec.name for spec in settings.aggregation.server_transforms),
        federation.bn_policy,
    )
    load_method(settings.method.name).check(facts)


def check_aggregation(settings: "RunSettings", clients: int | None) -> None:
    """Refuse an aggregator where the method has its own, and one that needs more participants.

    Args:
        settings: The settings of a run.
        clients: Number of clients of the partition; ``None`` while it is unknown.

    Raises:
        ValueError: If method or aggregator refuse them.
    """
    name, method = settings.aggregation.name, settings.method.name
    accepts = accepted(settings, "ACCEPTS_AGGREGATOR")
    if name != "mean" and not accepts:
        raise ValueError(
            f"aggregation.name {name} cannot be combined with method.name {method}, whose server step is its own: set "
            "aggregation.name to mean, or choose a method that averages: fedavg, or fedhybrid's version prox"
        )
    check_weighting(settings, accepts and accepted(settings, "ACCEPTS_WEIGHTING"))
    known = [count for count in (clients, settings.federation.clients_per_round) if count is not None]
    load_aggregator(name).check(settings.aggregation.chosen, min(known, default=None))


def accepted(settings: "RunSettings", what: str) -> bool:
    """Return whether the chosen method accepts something: a constant of its module, or a function of its settings."""
    accepts = getattr(load_method(settings.method.name), what)
    return bool(accepts(settings.method.chosen) if callable(accepts) else accepts)


def check_weighting(settings: "RunSettings", left_open: bool) -> None:
    """Refuse weights of the clients that nothing would use.

    Args:
        settings: The settings of a run.
        left_open: Whether the method leaves the weights to the settings.

    Raises:
        ValueError: If method or aggregator have weights of their own, or dynamic weights have no sample counts.
    """
    name, method, aggregator = settings.aggregation.weighting.name, settings.method.name, settings.aggregation.name
    if name == "samples":
        return
    if not left_open:
        raise ValueError(
            f"aggregation.weighting {name} cannot be combined with method.name {method}, whose weights are its own: "
            "set aggregation.weighting.name to samples, or choose a method that averages, such as fedavg"
        )
    if not load_aggregator(aggregator).USES_WEIGHTS:
        raise ValueError(
            f"aggregation.weighting {name} has no effect with aggregation.name {aggregator}, which uses no weights: "
            "set aggregation.weighting.name to samples"
        )
    if name == "dynamic" and load_method(method).DATA != "labelled":
        raise ValueError(
            f"aggregation.weighting dynamic counts labelled training images, which clients of method.name {method} "
            "need not have: set aggregation.weighting.name to samples or uniform"
        )
