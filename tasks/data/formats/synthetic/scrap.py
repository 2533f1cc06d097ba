"""The synthetic data set ``scrap``: heaps of scrap metal seen from a crane, six classes, single-label.

The classes are those of FedScrap's private photographs; the images are synthetic. ``scrap_pieces`` draws a piece of
each class. A heap of one class contains some pieces of others, more pieces of others are near the border, the crane's
magnet may be in front, and the air may be dusty. ``mixed-scrap`` consists of small pieces of every class, so a distant
heap with many foreign pieces is hard to distinguish from it.

Groups of sites: 1, 4, 7, ..: a dealer's yard, all classes; 2, 5, 8, ..: a steel mill's yard, sheets, slag and blocks;
3, 6, 9, ..: demolition, rebar, heavy and mixed scrap.
"""

import numpy as np
from PIL import Image

from tasks.data.formats.synthetic.pen import mix
from tasks.data.formats.synthetic.scrap_pieces import BLACK, PIECES, SHINE, STEEL
from tasks.data.formats.synthetic.single_canvas import GRAVEL, RUST, Brush, Canvas
from tasks.data.formats.synthetic.single_label import SingleLabelSet
from tasks.data.formats.synthetic.sites import RGB, SiteLook

_EARTH: RGB = (112, 98, 84)
_DUSTY = 0.3  # share of images with dust in the air
# Size of a piece relative to the heap's radius, and number of pieces that cover the heap
_SIZES = {
    "silicon-steel-sheet": (0.50, 10),
    "rebar": (0.52, 9),
    "slag-block": (0.36, 14),
    "heavy-scrap": (0.46, 11),
    "square-block": (0.42, 11),
    "mixed-scrap": (0.31, 19),
}
_KINDS = list(PIECES)


def paint(name: str, look: SiteLook, rng: np.random.Generator, side: int) -> Image.Image:
    """Draw a heap of scrap.

    Args:
        name: Its class.
        look: The site's appearance.
        rng: The image's generator.
        side: Canvas pixels a side.

    Returns:
        RGB, ``side`` pixels a side.
    """
    ground = mix(mix(_EARTH, look.surface, 0.45), BLACK, 0.3 * float(rng.random()))
    canvas = Canvas(side, ground, GRAVEL, rng, look)
    brush = canvas.brush
    _yard(brush, ground)
    _foreign_pieces(brush, name)
    _heap(brush, name)
    if rng.random() < 0.2:
        _magnet(brush)
    drawing = canvas.drawing()
    if rng.random() < _DUSTY:
        drawing = Image.blend(
            drawing, Image.new("RGB", drawing.size, mix(ground, SHINE, 0.3)), 0.35 * float(rng.random())
        )
    return drawing


def _yard(brush: Brush, ground: RGB) -> None:
    """Draw tracks on the ground, and sometimes a bunker wall or the sides of a lorry."""
    for _ in range(3):
        at = (brush.between(-1, 1), brush.between(-1, 1))
        brush.round(
            at, (brush.between(0.2, 0.6), brush.between(0.1, 0.4)), mix(ground, BLACK, brush.between(0, 0.3)), GRAVEL
        )
    kind = brush.rng.random()
    wall = mix(brush.look.surface, STEEL, 0.4)
    if kind < 0.3:
        height = brush.between(-0.9, -0.5)
        brush.fill([(-1, -1), (1, -1), (1, height), (-1, height)], wall, RUST)
        brush.bar((-1, height), (1, height), 0.05, mix(wall, BLACK, 0.6))
        for x in (-0.5, 0.1, 0.7):
            brush.bar((x, -1), (x, height), 0.02, mix(wall, BLACK, 0.4))
    elif kind < 0.5:
        inside = brush.between(0.75, 0.95)
        for x in (-inside, inside):
            brush.bar((x, -1), (x, 1), 0.12, mix(wall, BLACK, 0.5), RUST)
            brush.bar((x, -1), (x, 1), 0.06, wall)


def _piece(brush: Brush, kind: str, x: float, y: float, scale: float) -> None:
    """Draw a piece of a class at a position, randomly rotated; blocks stand upright, so they are rotated less."""
    angle = brush.between(-35, 35) if kind == "square-block" else brush.between(0, 180)
    PIECES[kind](brush.at(x, y, scale, angle))


def _foreign_pieces(brush: Brush, name: str) -> None:
    """Draw up to two pieces of other kinds near the border."""
    others = [kind for kind in _KINDS if kind != name]
    for _ in range(int(brush.between(0, 3))):
        kind = others[int(brush.rng.random() * len(others))]
        x, y = brush.either() * brush.between(0.75, 1.0), brush.between(-0.9, 0.9)
        if brush.rng.random() < 0.5:
            x, y = y, x
        _piece(brush, kind, x, y, brush.between(0.15, 0.3))


def _heap(brush: Brush, name: str) -> None:
    """Draw the heap from its far edge to its near one: pieces of the class, and some of others."""
    radius = brush.between(0.5, 0.95)
    share, count = _SIZES[name]
    middle = (brush.between(-0.2, 0.2), brush.between(-0.1, 0.25))
    foreign = 0.7 if name == "mixed-scrap" else brush.between(0.0, 0.2)
    distance, angle = np.sqrt(brush.rng.random(count)), 2 * np.pi * brush.rng.random(count)
    places = np.stack([distance * np.sin(angle), 0.75 * distance * np.cos(angle)], axis=1) * radius
    dirt = mix(brush.look.surface, BLACK, 0.7)
    for number in range(4):  # fines under the heap, not round
        x, y = middle[0] + 0.3 * radius * (number % 2 * 2 - 1), middle[1] + 0.25 * radius * (number // 2 * 2 - 1)
        brush.round((x, y), (radius * brush.between(0.4, 0.75), radius * brush.between(0.3, 0.6)), dirt, RUST)
    for x, y in places[np.argsort(places[:, 1])].tolist():
        is_foreign = brush.rng.random() < foreign
        kind = _KINDS[int(brush.rng.random() * len(_KINDS))] if is_foreign else name
        _piece(brush, kind, middle[0] + x, middle[1] + y, radius * share * brush.between(0.75, 1.2))


def _magnet(brush: Brush) -> None:
    """Draw the crane's lifting magnet, hanging in front."""
    x, y, radius = brush.between(-0.6, 0.6), brush.between(-0.7, 0.3), brush.between(0.2, 0.32)
    for offset in (-0.5, 0.0, 0.5):
        brush.bar((x + 0.3 * offset, -1), (x + offset * radius, y), 0.025, BLACK)
    brush.round((x, y + 0.05), (radius, radius), BLACK)
    brush.round((x, y), (radius, radius), (70, 66, 60), RUST)
    brush.round((x, y), (0.35 * radius, 0.35 * radius), (186, 152, 62))


SET = SingleLabelSet(
    name="scrap",
    prompts={
        "silicon-steel-sheet": "a heap of silicon steel sheets",
        "rebar": "a heap of reinforcing bars",
        "slag-block": "a heap of hot-pressed slag blocks",
        "heavy-scrap": "a heap of heavy scrap steel, thick plates and beams",
        "square-block": "a heap of square pressed blocks of scrap",
        "mixed-scrap": "a heap of mixed scrap metal",
    },
    shared=(0.16, 0.18, 0.14, 0.18, 0.16, 0.18),
    groups=(
        (0.14, 0.18, 0.12, 0.18, 0.18, 0.20),
        (0.30, 0.08, 0.24, 0.08, 0.20, 0.10),
        (0.06, 0.30, 0.06, 0.28, 0.08, 0.22),
    ),
    paint=paint,
)
