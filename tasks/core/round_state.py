"""The state of a round: what a method takes and returns, and all that the next round starts from.

Evaluation, tracking, export, resuming and the report ask it which models there are and which one is a client's own.
"""

import hashlib
from dataclasses import dataclass, field, replace

from models.errors import UserError
from tasks.core.model_ref import ModelRef

GLOBAL = "global"
_CLIENT, _CLUSTER = "client/", "cluster/"
_UPLOAD, _RECEIVED = "upload/", "received/"  # kept for one client, like its model


def client_model(client: str) -> str:
    """Return the name of a client's own model in ``RoundState.models``."""
    return f"{_CLIENT}{client}"


def upload_model(client: str) -> str:
    """Return the name, in ``RoundState.models``, of the model that a client last sent."""
    return f"{_UPLOAD}{client}"


def received_model(client: str) -> str:
    """Return the name, in ``RoundState.models``, of the model from which a client trained the one it last sent."""
    return f"{_RECEIVED}{client}"


def cluster_model(index: int) -> str:
    """Return the name of a cluster's model in ``RoundState.models``."""
    return f"{_CLUSTER}{index}"


@dataclass
class RoundState:
    """Models and tensors between two rounds.

    A round gets a copy that its method may change, and the method returns the state that the round ends with.

    Attributes:
        models: Name -> weights: ``global``, ``cluster/<index>``, ``client/<id>``, ``upload/<id>`` and
            ``received/<id>`` (what a client last sent, and from what it was trained), or parts of a model that a
            method names itself (``sigma``).
        private: Client -> tensors that the client keeps until a training renews them, and never sends: those of its
            regularisers (``<regulariser>/<name>``), of update transforms (``transforms/...``), and of its model
            (``model/<name>``).
        personal: Client -> tensors that the server made for one client (``model/<name>``): they are sent along with
            the model, replace the model's tensors of that name, and are evaluated with it.
        server: Namespace -> tensors that the server keeps: of a method or an aggregator.
        own: Client -> name of the model that is its own; without an entry, or for ``global``, it is the evaluated one.
        cluster_of: Client -> index of its cluster; empty without clustering.
        participations: Client -> number of rounds in which its update was averaged, where the weights need it.
        evaluated: Name of the model that is evaluated, exported and shown; training goes on from the global one.
    """

    models: dict[str, ModelRef] = field(default_factory=dict)
    private: dict[str, ModelRef] = field(default_factory=dict)
    personal: dict[str, ModelRef] = field(default_factory=dict)
    server: dict[str, ModelRef] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    cluster_of: dict[str, int] = field(default_factory=dict)
    participations: dict[str, int] = field(default_factory=dict)
    evaluated: str = GLOBAL

    @classmethod
    def starting_from(cls, model: ModelRef) -> "RoundState":
        """Return the state before the first round: one global model."""
        return cls(models={GLOBAL: model})

    def copy(self) -> "RoundState":
        """Return a copy; a change of one does not change the other."""
        return replace(
            self,
            models=dict(self.models),
            private=dict(self.private),
            personal=dict(self.personal),
            server=dict(self.server),
            own=dict(self.own),
            cluster_of=dict(self.cluster_of),
            participations=dict(self.participations),
        )

    @property
    def global_model(self) -> ModelRef:
        """The global model.

        Raises:
            UserError: If the method keeps none.
        """
        if GLOBAL not in self.models:
            raise UserError(
                "the round has no global model", where="method.name", expected=GLOBAL, found=sorted(self.models)[:5]
            )
        return self.models[GLOBAL]

    @property
    def evaluated_model(self) -> ModelRef | None:
        """The shared model that is evaluated and exported; ``None`` where clients have only their own ones."""
        return self.models.get(self.evaluated)

    def with_global(self, model: ModelRef) -> "RoundState":
        """Set the global model; return this state."""
        self.models[GLOBAL] = model
        return self

    @property
    def cluster_models(self) -> list[ModelRef]:
        """The clusters' models by index, empty without clustering."""
        names = (cluster_model(index) for index in range(len(self.models)))
        return [self.models[name] for name in names if name in self.models]

    def set_clusters(self, cluster_of: dict[str, int], models: list[ModelRef]) -> None:
        """Replace the clusters by these: client -> index, and one model per index."""
        kept = {name: ref for name, ref in self.models.items() if not name.startswith(_CLUSTER)}
        self.models = kept | {cluster_model(index): ref for index, ref in enumerate(models)}
        self.cluster_of = dict(cluster_of)

    @property
    def personalised(self) -> list[str]:
        """The clients, sorted, that have a model of their own or tensors that replace a shared model's."""
        return sorted(self.own.keys() | self.personal.keys())

    def own_model(self, client: str) -> tuple[ModelRef, tuple[ModelRef, ...]]:
        """Return a client's model and what replaces its tensors: those it keeps, then those made for it.

        Only ``model/<name>`` tensors of the latter count. A client that is not ``personalised`` has the global model,
        as the server evaluates it.

        Raises:
            UserError: If the method keeps no such model.
        """
        if client not in self.own and client not in self.personal:
            return self.global_model, ()
        name = self.own.get(client, GLOBAL)
        name = self.evaluated if name == GLOBAL else name
        if name not in self.models:
            raise UserError("a client's model is not there", where=client, expected=name, found=sorted(self.models)[:5])
        return self.models[name], tuple(part[client] for part in (self.private, self.personal) if client in part)

    @property
    def digest(self) -> str:
        """The evaluated model's digest; without one, the sha256 over all models' names and digests."""
        if self.evaluated_model is not None:
            return self.evaluated_model.digest
        lines = (f"{name}|{ref.digest}\n" for name, ref in sorted(self.models.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def at_clients(self) -> list[ModelRef]:
        """What is stored by client and not with the round: private and personal tensors, models of one client."""
        models = [ref for name, ref in self.models.items() if kept_for(name) is not None]
        return [*self.private.values(), *self.personal.values(), *models]


def client_of(model: str) -> str | None:
    """Return whose model a name of ``RoundState.models`` is, ``None`` for a shared one."""
    return model.removeprefix(_CLIENT) if model.startswith(_CLIENT) else None


def kept_for(model: str) -> tuple[str, str] | None:
    """Return the kind and the client of a model that is kept for one client, of the last round only.

    ``("model", id)`` of ``client/<id>``, ``("upload", id)`` of ``upload/<id>``, ``("received", id)`` of
    ``received/<id>``; ``None`` of a shared model.
    """
    for prefix, kind in ((_CLIENT, "model"), (_UPLOAD, "upload"), (_RECEIVED, "received")):
        if model.startswith(prefix):
            return kind, model.removeprefix(prefix)
    return None
