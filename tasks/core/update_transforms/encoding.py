"""How a compressed update travels, from which its bytes are counted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Encoding:
    """How the parameters' change travels, from which its bytes are counted.

    Attributes:
        entries: Numbers that travel.
        value_bits: Bits of each.
        position_bits: Bits of all that say where they belong; 0: every parameter travels.
        extra_bytes: Scales and the like.
    """

    entries: int
    value_bits: int = 32
    position_bits: int = 0
    extra_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Return the bytes that travel, rounded up."""
        return -(-(self.entries * self.value_bits + self.position_bits) // 8) + self.extra_bytes
