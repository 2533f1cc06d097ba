"""One entry per method: the settings under which `tests/methods/test_contract.py` holds it to the contracts."""

import dataclasses
from typing import Any

from models.build import new_model
from models.registry import ModelSpec
from models.settings.model import ModelSettings
from tasks.core.state_schema import batch_norms, schema_of
from tests.support.rounds import NARROW, PLAIN_SGD


@dataclasses.dataclass(frozen=True)
class Contract:
    """How a method is held to the contracts.

    Attributes:
        neutral: The method's settings that make it FedAvg; see also ``neutral_rounds`` and ``not_averaged``. ``None``:
            none does, so nothing is held against FedAvg bit for bit.
        neutral_rounds: For how many rounds they do.
        neutral_keeps: Whether clients keep tensors for their next training (``RoundState.at_clients``) even then.
        not_averaged: Full names, not prefixes, of tensors that the method never averages, so that they are not compared
            with FedAvg's.
        active: Settings that make the method do what it is for, within ``rounds`` rounds.
        rounds: So many rounds show all that the method does.
        one_client: Whether it runs with a single client.
        objective: Name of the objective.
        network: Settings of the network.
        train: Settings of local training.
        federation: Settings of the federation.
        evaluated_round: A round that must be evaluated, where models are made for the evaluation.
        clustered: Whether a client's own model is its cluster's, so that it has one even if its training failed.
        aggregates: Whether there is anything that clients' models are averaged into.
        sends_all: Whether clients send every tensor; else some stay with them (``LocalWork.keeps``).
        global_is_fedavg: Whether the global model is always FedAvg's, and only the clients' own ones are not.
    """

    neutral: dict[str, Any] | None
    neutral_rounds: int = 2
    neutral_keeps: bool = False
    not_averaged: tuple[str, ...] = ()
    active: dict[str, Any] = dataclasses.field(default_factory=dict)
    rounds: int = 2
    one_client: bool = True
    objective: str = "bce"
    network: dict[str, Any] = dataclasses.field(default_factory=lambda: NARROW)
    train: dict[str, Any] = dataclasses.field(default_factory=lambda: {"lr": 0.01})
    federation: dict[str, Any] = dataclasses.field(default_factory=dict)
    sends_all: bool = True
    global_is_fedavg: bool = False
    evaluated_round: int = 0
    clustered: bool = False
    aggregates: bool = True


def batch_norm_tensors() -> tuple[str, ...]:
    """Return the names of the tensors of batch normalisation in the network ``NARROW``."""
    model = new_model(ModelSettings.model_validate(NARROW), ModelSpec(("a", "b"), 32), seed=0)
    return tuple(name for name in model.state_dict() if name.startswith(batch_norms(schema_of(model))))


SCENES = {"name": "xuesgcn", "xuesgcn": {"scenes": 2, "attention_width": 8, "graph_width": 8}}
CONTRACTS = {
    "fedavg": Contract(neutral={}),
    "fedprox": Contract(neutral={"mu": 0}, active={"mu": 1.0}),
    "moon": Contract(neutral={"mu": 0}, active={"mu": 5.0}),
    "fedhybrid": Contract(neutral={"version": "prox", "mu": 0}, active={"mu": 0.5}),
    # Its first round, before any control variate is known, is FedAvg's.
    "scaffold": Contract(neutral={"weighting": "size"}, neutral_rounds=1, neutral_keeps=True, train=PLAIN_SGD),
    "feddyn": Contract(neutral={"alpha": 0, "weighting": "size"}, active={"alpha": 0.5}, rounds=3),
    "fedper": Contract(neutral={"personal": []}, rounds=3, sends_all=False),
    "fedrep": Contract(neutral={"personal": []}, rounds=3, sends_all=False),
    # In its first round clients have no normalisation of their own yet, and the rest is FedAvg's.
    "fedbn": Contract(
        neutral={},
        neutral_rounds=1,
        neutral_keeps=True,
        not_averaged=batch_norm_tensors(),
        rounds=3,
        sends_all=False,
    ),
    # Beside FedAvg it trains the clients' own models, with lambda 0 locally: tests/methods/test_ditto.py.
    "ditto": Contract(neutral={"lam": 0}, neutral_keeps=True, active={"lam": 1.0}, rounds=3, global_is_fedavg=True),
    # Its second round is the first in which a client has a last model to mix with.
    "fedala": Contract(
        neutral={"layers": []}, neutral_keeps=True, active={"layers": ["readout.", "backbone.layer4."]}, rounds=3
    ),
    # The global model is the mean; in the first round, in which all start alike, it is FedAvg's.
    "fedscrap": Contract(neutral={}, neutral_rounds=1, neutral_keeps=True, rounds=3),
    "fedamp": Contract(neutral={"lam": 0}, neutral_rounds=1, neutral_keeps=True, active={"alpha": 1.0}, rounds=3),
    # Nothing makes it FedAvg: tests/methods/test_local.py.
    "local": Contract(neutral=None, rounds=3, aggregates=False),
    "fedavg_finetune": Contract(neutral={"epochs": 0}, active={"epochs": 1}, global_is_fedavg=True, evaluated_round=2),
    "ifca": Contract(neutral={"clusters": 1}, active={"clusters": 2}, rounds=3, clustered=True),
    "cfl": Contract(
        neutral={"warmup": 9, "weighting": "size"},
        active={"warmup": 1, "eps1": 1e9, "eps2": 0.0},
        rounds=3,
        clustered=True,
    ),
    "icfl": Contract(
        neutral={"theta_split": -1.0},
        neutral_keeps=True,
        active={"theta_join": 1, "theta_split": 0.99, "theta_merge": 1},
        rounds=3,
    ),
    "cpfl": Contract(neutral={}, neutral_rounds=1, neutral_keeps=True, rounds=3),
    # With equally many steps at all clients there is nothing to normalise.
    "fednova": Contract(neutral={}, train={"lr": 0.05, "optimizer": "sgd", "momentum": 0.9}),
    # During the warm-up it draws clients as FedAvg does. Round 3 fits and chooses, round 4 probes.
    "fedcor": Contract(
        neutral={"warmup": 2, "aggregation": "size"},
        active={"warmup": 2, "interval": 1, "rank": 2, "gp_steps": 5, "gp_steps_later": 3},
        rounds=4,
        one_client=False,  # it chooses among clients
        federation={"clients_per_round": 2},
    ),
    # Counts are added up; in the first round nothing has been lent, so what is averaged is FedAvg's.
    "xuesgcn": Contract(
        neutral={"scene_shared": True},
        neutral_rounds=1,
        not_averaged=("co_occurrence", "scene_counts"),
        objective="asl",
        network=NARROW | SCENES,
    ),
    "fmman": Contract(
        neutral={"clustering": "none", "final_agg": "size"},
        active={"clusters": 2, "cluster_on": "backbone.layer4."},
    ),
}
