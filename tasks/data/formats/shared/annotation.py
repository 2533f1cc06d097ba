"""The contents of one annotation file, whatever its format."""

from dataclasses import dataclass, field

from tasks.data.source.sample import Boxes


class AnnotationError(Exception):
    """The annotation cannot be used; ``reason`` is ``bad_xml``, ``unsafe_xml`` or ``bad_text``."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Annotation:
    """The labels and boxes that an annotation file gives its image.

    Attributes:
        labels: The names of its objects as written, each once, in order of appearance; ``()`` for a negative.
        boxes: Its boxes, and the size of the image as declared.
        encoding: The encoding it was decoded with if that needed a repair, else ``""``.
        erased: How many objects are marked deleted and do not count.
    """

    labels: tuple[str, ...]
    boxes: Boxes = field(default_factory=Boxes)
    encoding: str = ""
    erased: int = 0
