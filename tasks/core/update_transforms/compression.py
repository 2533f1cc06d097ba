"""What compressing transforms share: the change of the parameters, error feedback, and the bytes that travel."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tasks.core.update_transforms.encoding import Encoding

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.update_transforms import SentUpdate

Changes = dict[str, "Tensor"]  # name -> change of a parameter, float32, in name order


def encoding_of(update: "SentUpdate") -> Encoding:
    """Return how an update travels so far: as earlier transforms left it, or every parameter in 32 bits."""
    return update.encoding or Encoding(sum(update.state[name].numel() for name in parameters(update)))


def parameters(update: "SentUpdate") -> list[str]:
    """Return the names of an update's parameters, in name order; buffers travel as they are."""
    return [name for name in sorted(update.state) if update.schema[name].kind == "parameter"]


def compress(
    update: "SentUpdate", lossy: Callable[[Changes], Changes], feedback: bool
) -> "tuple[dict[str, Tensor], dict[str, Tensor]]":
    """Return an update's tensors with the parameters' compressed change, and the error that the client keeps.

    With error feedback (Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019, algorithm 1), what was lost is
    added to the client's next change: p = theta - W + e, sent C(p), e' = p - C(p).

    Args:
        update: The update.
        lossy: C: compresses and restores the changes of all parameters.
        feedback: Whether there is error feedback.
    """
    changes: Changes = {}
    for name in parameters(update):
        changes[name] = update.state[name].float() - update.start[name].float()
        if feedback and name in update.memory:
            changes[name] += update.memory[name]
    sent = lossy(changes)
    state = dict(update.state)
    for name, change in sent.items():
        state[name] = (update.start[name].float() + change).to(update.state[name].dtype)
    return state, {name: changes[name] - sent[name] for name in changes} if feedback else {}
