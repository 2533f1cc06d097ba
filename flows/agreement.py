"""Whether the sections of the settings fit together: method, network, loss and number of clients."""

from typing import TYPE_CHECKING

from flows.rounds import load_method
from models.registry import NETWORKS
from models.timm_settings import FAMILIES, check_image_size

if TYPE_CHECKING:
    from flows.settings import Settings


def check_agreement(settings: "Settings") -> None:
    """Refuse settings that contradict each other.

    Raises:
        ValueError: The loss does not fit the network, the network not the method, or there are too few clients.
        UserError: The network's patches do not cover the images.
    """
    model, method = settings.model.name, settings.method.name
    fitting = NETWORKS[model].objectives
    if settings.objective_name not in fitting:
        raise ValueError(
            f"objective.name {settings.objective_name} does not fit model.name {model}, "
            f"which can be trained with {', '.join(fitting)}"
        )
    if bool(NETWORKS[model].private) != (method == "xuesgcn"):
        raise ValueError(
            "network and method xuesgcn go together, as its scenes have a rule of their own at the server; "
            f"found model.name {model} and method.name {method}. --preset xuesgcn sets both"
        )
    clients = settings.partition.clients
    taking_part = [n for n in (clients, settings.federation.clients_per_round) if n is not None]
    if clients is not None and (settings.federation.clients_per_round or 0) > clients:
        raise ValueError(
            f"federation.clients_per_round {settings.federation.clients_per_round} is more than "
            f"partition.clients {clients}"
        )
    if model in FAMILIES:
        check_image_size(model, settings.model.timm, settings.ingest.image_size)
    own_check = getattr(load_method(method), "check", None)
    if own_check is not None:
        own_check(settings)
    if method == "fmman" and taking_part:
        check_clusters(settings, min(taking_part), "clients take part in a round")


def check_clusters(settings: "Settings", clients: int, what: str) -> None:
    """FMMAN cannot form more groups than it has clients.

    Raises:
        ValueError: If it is asked to.
    """
    method = settings.method.chosen
    if settings.method.name == "fmman" and method.clustering != "none" and method.clusters > clients:
        raise ValueError(f"method.fmman.clusters is {method.clusters}, but only {clients} {what}")
