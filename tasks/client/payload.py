"""What the server sends a client: initial weights, reference models, the method's tensors, the client's own state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tasks.core.model_ref import ModelRef

Needed = Literal["none", "own_cluster", "all"]  # reference models that an objective or a regulariser uses
REFERENCE, OWN = "reference", "own"  # roles of reference models; OWN: that of the client's cluster


@dataclass(frozen=True)
class Sent:
    """Tensors that a client uses.

    Attributes:
        ref: The tensors.
        role: What they are for; of reference models ``own`` marks that of the client's cluster.
        copies: How many equal sets of tensors they stand for: they travel once.
        travels: Whether they are sent; else the client has them already.
        compressed_bytes: Bytes that travel, where they are sent as the compressed change of others.
    """

    ref: ModelRef
    role: str = REFERENCE
    copies: int = 1
    travels: bool = True
    compressed_bytes: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes that travel if they are sent."""
        return self.ref.bytes if self.compressed_bytes is None else self.compressed_bytes


@dataclass(frozen=True)
class Payload:
    """All that one client is sent for one training.

    Attributes:
        start: The initial weights.
        references: Frozen models for objectives and regularisers; ``reduced`` keeps those that are needed.
        method: Tensors of the method for its regulariser, the same for all clients.
        private: Tensors that the client kept from its last training: they never travel.
        personal: Tensors that the server made for this client; they replace the start's.
    """

    start: Sent
    references: tuple[Sent, ...]
    method: Sent | None = None
    private: Sent | None = None
    personal: Sent | None = None

    @classmethod
    def of(
        cls,
        start: ModelRef,
        *,
        references: Sequence[ModelRef] | None = None,
        own: int | None = None,
        method: ModelRef | None = None,
        at_client: bool = False,
        held: Sequence[ModelRef] = (),
    ) -> "Payload":
        """Return the payload of one client.

        Args:
            start: The initial weights.
            references: Frozen models. Default: the start, which for most methods is the global model.
            own: Index of the client's cluster among the references; ``None`` without clusters.
            method: Tensors of the method for its regulariser.
            at_client: The client has the start already, so it is not sent.
            held: References that the client has already, from an earlier stage of the round.
        """
        given = [start] if references is None else list(references)
        return cls(
            Sent(start, "start", travels=not at_client),
            tuple(
                Sent(ref, OWN if index == own else REFERENCE, travels=ref not in held)
                for index, ref in enumerate(given)
            ),
            Sent(method, "method") if method else None,
        )

    def with_state(self, private: ModelRef | None, personal: ModelRef | None) -> "Payload":
        """Return the payload with the client's own tensors."""
        return replace(
            self,
            private=Sent(private, "private", travels=False) if private else None,
            personal=Sent(personal, "personal") if personal else None,
        )

    def reduced(self, need: Needed) -> "Payload":
        """Return the payload with the references that are needed; equal ones become one that counts for all.

        ``own_cluster``: that of the client's cluster, or the first one without clusters.
        """
        given = self.references
        if need == "none" or not given:
            return replace(self, references=())
        if need == "own_cluster":
            return replace(self, references=([*(sent for sent in given if sent.role == OWN), given[0]][0],))
        if len(given) > 1 and all(sent.ref.digest == given[0].ref.digest for sent in given):
            role = OWN if any(sent.role == OWN for sent in given) else REFERENCE
            copies = sum(sent.copies for sent in given)
            return replace(self, references=(replace(given[0], role=role, copies=copies),))
        return self

    @property
    def own_reference(self) -> int | None:
        """Index of the client's cluster among the references, ``None`` without clusters."""
        return next((index for index, sent in enumerate(self.references) if sent.role == OWN), None)

    @property
    def _travelling(self) -> list[Sent]:
        parts = [*self.references, self.method, self.personal, self.start]
        return [sent for sent in parts if sent is not None and sent.travels]

    @property
    def bytes(self) -> int:
        """Bytes that are sent to the client: equal tensors once."""
        return sum({sent.ref.digest: sent.bytes for sent in self._travelling}.values())

    @property
    def naive_bytes(self) -> int:
        """Bytes with every copy of a reference counted, as papers count them."""
        copies = sum(sent.ref.bytes * sent.copies for sent in self.references if sent.travels)
        known = {sent.ref.digest for sent in self.references}
        others = {sent.ref.digest: sent.ref.bytes for sent in self._travelling if sent.ref.digest not in known}
        return copies + sum(others.values())

    def identity(self) -> list[object]:
        """Return what decides the training's result, as plain values: digests, roles and copies, not places."""
        parts = [self.start, *self.references, self.method, self.private, self.personal]
        return [[sent.role, sent.ref.digest, sent.copies] if sent else None for sent in parts]
