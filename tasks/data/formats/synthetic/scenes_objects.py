"""The objects of the set ``scenes``: one function per object, drawn upwards from its foot.

In an object's cell (0, 0) is the middle of its foot and y = -1 about its height; the ground is at y = 0.
"""

from tasks.data.formats.synthetic.pen import Point, mix
from tasks.data.formats.synthetic.single_canvas import BRUSHED, LEAVES, RUST, SMOOTH, Brush
from tasks.data.formats.synthetic.sites import RGB

BLACK: RGB = (26, 27, 30)
STEEL: RGB = (140, 146, 152)
WHITE: RGB = (240, 241, 240)
CONCRETE: RGB = (166, 164, 158)
_PORCELAIN: tuple[RGB, ...] = ((112, 64, 48), (150, 150, 154), (96, 58, 50), (176, 176, 170))
_HELMETS: tuple[RGB, ...] = ((230, 60, 40), (240, 200, 40), (50, 100, 200), WHITE)
_LAMPS: tuple[RGB, ...] = ((230, 50, 40), (40, 200, 90), (240, 180, 40))


def equipment_colour(brush: Brush) -> RGB:
    """Return the colour of the site's equipment, with a random change of brightness."""
    paint = mix(brush.look.surface, STEEL, 0.35)
    return mix(paint, brush.one_of((BLACK, WHITE)), brush.between(0.0, 0.3))


def box(
    brush: Brush, left: float, top: float, right: float, bottom: float, colour: RGB, material: int = SMOOTH
) -> None:
    """Draw an upright rectangle."""
    brush.fill([(left, top), (right, top), (right, bottom), (left, bottom)], colour, material)


def tube(brush: Brush, start: Point, end: Point, width: float, colour: RGB) -> None:
    """Draw a round tube, lit from above, or from the left if it is upright."""
    (x, y), (end_x, end_y) = start, end
    dx, dy = (0.0, -0.2 * width) if abs(end_x - x) >= abs(end_y - y) else (-0.2 * width, 0.0)
    brush.bar(start, end, width, mix(colour, BLACK, 0.6))
    brush.bar((x + 0.6 * dx, y + 0.6 * dy), (end_x + 0.6 * dx, end_y + 0.6 * dy), 0.62 * width, colour, None)
    brush.bar((x + dx, y + dy), (end_x + dx, end_y + dy), 0.2 * width, mix(colour, WHITE, 0.6), None)


def insulator(brush: Brush, start: Point, end: Point, width: float, sheds: int, colour: RGB) -> None:
    """Draw a rod with sheds across it."""
    (x, y), (end_x, end_y) = start, end
    brush.bar(start, end, 0.5 * width, mix(colour, BLACK, 0.3))
    length = max(1e-6, ((end_x - x) ** 2 + (end_y - y) ** 2) ** 0.5)
    across_x, across_y = -(end_y - y) / length * width / 2, (end_x - x) / length * width / 2
    for number in range(sheds):
        share = (number + 0.5) / sheds
        px, py = x + share * (end_x - x), y + share * (end_y - y)
        ends = (px - across_x, py - across_y), (px + across_x, py + across_y)
        brush.bar(*ends, 0.4 * length / sheds, colour, None)


def porcelain(brush: Brush) -> RGB:
    """Sample the colour of an image's insulators."""
    return brush.one_of(_PORCELAIN)


def post(brush: Brush, colour: RGB, head: str) -> None:
    """Draw a post insulator on a steel support, with a head: ``breaker``, ``transformer``, ``arrester`` or ``bare``."""
    steel = mix(STEEL, BLACK, 0.35)
    for x in (-0.08, 0.08):
        brush.bar((x, 0), (x, -0.42), 0.05, steel)
    brush.bar((-0.14, -0.42), (0.14, -0.42), 0.06, steel)
    insulator(brush, (0, -0.42), (0, -0.92), 0.17, 6, colour)
    if head == "transformer":
        box(brush, -0.13, -1.12, 0.13, -0.9, mix(STEEL, WHITE, 0.3))
        brush.bar((-0.13, -1.12), (0.13, -1.12), 0.04, BLACK)
    elif head == "breaker":
        insulator(brush, (-0.02, -0.94), (-0.34, -1.2), 0.14, 4, colour)
        insulator(brush, (0.02, -0.94), (0.34, -1.2), 0.14, 4, colour)
    elif head == "arrester":
        brush.bar((-0.2, -0.95), (0.2, -0.95), 0.05, mix(STEEL, WHITE, 0.4))
        brush.bar((0, -0.92), (0, -1.1), 0.04, steel)


def disconnector(brush: Brush, colour: RGB) -> None:
    """Draw two posts on a common beam and the arm between them, closed or half open."""
    steel = mix(STEEL, BLACK, 0.35)
    for x in (-0.35, 0.35):
        brush.bar((x, 0), (x, -0.4), 0.05, steel)
        insulator(brush, (x, -0.42), (x, -0.88), 0.15, 5, colour)
    brush.bar((-0.45, -0.42), (0.45, -0.42), 0.06, steel)
    end = (0.35, -0.92) if brush.rng.random() < 0.6 else (0.15, -1.35)
    brush.bar((-0.35, -0.92), end, 0.05, mix(STEEL, WHITE, 0.5))


def lattice(brush: Brush, foot: Point, top: Point, half_foot: float, half_top: float, fields: int, colour: RGB) -> None:
    """Draw a lattice mast: two converging legs and a zigzag between them."""
    (x, y), (top_x, top_y) = foot, top
    zigzag = []
    for number in range(fields + 1):
        share = number / fields
        half = (half_foot + (half_top - half_foot) * share) * (1 if number % 2 else -1)
        zigzag.append((x + (top_x - x) * share + half, y + (top_y - y) * share))
    brush.path(zigzag, 0.018, colour, None)
    brush.path(
        [(2 * (x + (top_x - x) * k / fields) - px, py) for k, (px, py) in enumerate(zigzag)], 0.018, colour, None
    )
    brush.bar((x - half_foot, y), (top_x - half_top, top_y), 0.035, colour, None)
    brush.bar((x + half_foot, y), (top_x + half_top, top_y), 0.035, colour, None)


def gantry(brush: Brush, width: float) -> None:
    """Draw a portal: two lattice legs, a lattice beam, insulator strings below it."""
    colour = mix(STEEL, BLACK, brush.between(0.1, 0.4))
    for x in (-width, width):
        lattice(brush, (x, 0), (x, -1.0), 0.09, 0.05, 7, colour)
    teeth = [(-width + 2 * width * k / 14, -1.05 if k % 2 else -0.96) for k in range(15)]
    brush.path(teeth, 0.02, colour)
    for y in (-1.05, -0.96):
        brush.bar((-width, y), (width, y), 0.03, colour)
    clay = porcelain(brush)
    for x in (-0.6 * width, 0.0, 0.6 * width):
        insulator(brush, (x, -0.95), (x + 0.05, -0.72), 0.07, 4, clay)


def tower(brush: Brush) -> None:
    """Draw a line tower with three cross-arms and their insulator strings."""
    colour = mix(STEEL, BLACK, brush.between(0.15, 0.5))
    lattice(brush, (0, 0), (0, -0.55), 0.2, 0.07, 5, colour)
    lattice(brush, (0, -0.55), (0, -1.08), 0.07, 0.02, 6, colour)
    clay = porcelain(brush)
    for y, reach in ((-0.60, 0.30), (-0.76, 0.36), (-0.92, 0.26)):
        for sign in (-1, 1):
            brush.path([(0, y - 0.07), (sign * reach, y), (0, y)], 0.025, colour)
            insulator(brush, (sign * reach, y), (sign * reach, y + 0.09), 0.05, 3, clay)


def transformer(brush: Brush) -> None:
    """Draw a main transformer: tank, radiators, conservator, leaning bushings."""
    paint = equipment_colour(brush)
    dark, light = mix(paint, BLACK, 0.55), mix(paint, WHITE, 0.3)
    box(brush, -0.95, -0.02, 0.95, 0.06, BLACK)
    box(brush, -0.55, -0.68, 0.55, 0.0, paint, BRUSHED)
    box(brush, -0.6, -0.72, 0.6, -0.66, light)
    for x in (-0.3, 0.05, 0.35):
        brush.bar((x, -0.64), (x, -0.04), 0.03, dark)
    for side in (-1, 1) if brush.rng.random() < 0.75 else (brush.either(),):
        near, far = sorted((side * 0.58, side * 0.95))
        box(brush, near, -0.62, far, -0.08, dark)
        for number in range(6):
            x = near + (far - near) * (number + 0.5) / 6
            brush.bar((x, -0.62), (x, -0.08), 0.032, mix(paint, WHITE, 0.15))
        tube(brush, (near, -0.6), (far, -0.6), 0.06, paint)
    if brush.rng.random() < 0.85:  # the conservator, on its stand
        left = brush.between(-0.7, -0.3)
        for x in (left + 0.15, left + 0.6):
            brush.bar((x, -0.7), (x, -0.95), 0.03, dark)
        tube(brush, (left, -1.0), (left + 0.8, -1.0), 0.2, light)
    clay = porcelain(brush)
    for x in (-0.25, 0.1, 0.45):
        insulator(brush, (x, -0.7), (x + 0.12, -1.2), 0.12, 6, clay)


def gas_bay(brush: Brush, length: float) -> None:
    """Draw a bay of gas-insulated switchgear: a main tube with flanges, upright tubes with domes, drives, legs."""
    paint = mix(equipment_colour(brush), brush.one_of((WHITE, STEEL)), brush.between(0.1, 0.6))
    dark = mix(paint, BLACK, 0.65)
    count = int(brush.between(3, 5))
    places = [-length + 2 * length * (number + 0.5) / count for number in range(count)]
    for x in places:
        brush.bar((x - 0.1, 0), (x - 0.1, -0.4), 0.05, dark)
        brush.bar((x + 0.1, 0), (x + 0.1, -0.4), 0.05, dark)
    high = brush.rng.random() < 0.6  # a second tube above
    if high:
        tube(brush, (-length, -0.98), (length, -0.98), 0.22, paint)
    tube(brush, (-length, -0.42), (length, -0.42), 0.32, paint)
    for x in places:
        top = -0.98 if high else -brush.between(0.75, 1.0)
        tube(brush, (x, -0.42), (x, top), 0.26, paint)
        brush.round((x, top), (0.17, 0.14), dark)
        brush.round((x - 0.01, top - 0.01), (0.14, 0.11), mix(paint, WHITE, 0.25))
        for y in (-0.62, -0.78):
            brush.bar((x - 0.18, y), (x + 0.18, y), 0.045, dark, None)
        edge = x + length / count
        brush.bar((edge, -0.61), (edge, -0.23), 0.06, dark)
        if brush.rng.random() < 0.6:
            box(brush, x - 0.16, -0.26, x + 0.12, -0.04, brush.one_of((STEEL, WHITE, paint)))


def cabinet(brush: Brush, wide: float, paint: RGB, slant: float = 0.0) -> None:
    """Draw a cabinet's front, two high; ``slant`` shortens its right edge (above 0) or its left."""
    left_top, right_top = (-2.0 + max(0.0, -slant)), (-2.0 + max(0.0, slant))
    left_foot, right_foot = -0.5 * max(0.0, -slant), -0.5 * max(0.0, slant)

    def at(x: float, y: float) -> Point:
        """Map a point of the front, 0 to 1, to the cell."""
        top, foot = left_top + (right_top - left_top) * x, left_foot + (right_foot - left_foot) * x
        return (2 * x - 1) * wide, top + (foot - top) * y

    def front(x: float, y: float, right: float, bottom: float, colour: RGB) -> None:
        brush.fill([at(x, y), at(right, y), at(right, bottom), at(x, bottom)], colour)

    dark = mix(paint, BLACK, 0.6)
    front(0, 0, 1, 1, dark)
    front(0.05, 0.02, 0.95, 0.3, mix(paint, WHITE, 0.15))
    front(0.05, 0.32, 0.95, 0.97, paint)
    front(0.2, 0.07, 0.5, 0.2, BLACK if brush.rng.random() < 0.5 else mix(paint, WHITE, 0.7))
    front(0.3, 0.42, 0.7, 0.55, mix(paint, BLACK, 0.35))
    for number, x in enumerate((0.62, 0.76)):
        brush.round(at(x, 0.14), (0.09 * wide, 0.09 * wide), _LAMPS[(number + int(brush.rng.random() * 3)) % 3])
    brush.bar(at(0.85, 0.55), at(0.85, 0.7), 0.06 * wide, BLACK)


def person(brush: Brush) -> None:
    """Draw a worker with a helmet, one high."""
    clothes = brush.one_of(((52, 70, 110), (90, 96, 104), (200, 110, 40)))
    for x in (-0.08, 0.08):
        brush.bar((x, 0), (0.6 * x, -0.48), 0.12, mix(clothes, BLACK, 0.4))
    box(brush, -0.16, -0.82, 0.16, -0.42, clothes)
    brush.bar((-0.2, -0.78), (-0.26, -0.45), 0.08, clothes)
    brush.bar((0.2, -0.78), (0.26, -0.5), 0.08, clothes)
    brush.round((0, -0.9), (0.09, 0.1), (206, 160, 130))
    brush.round((0, -0.96), (0.12, 0.08), brush.one_of(_HELMETS))


def tree(brush: Brush) -> None:
    """Draw a bush or tree, one high."""
    green = mix((70, 96, 56), BLACK, brush.between(0.0, 0.4))
    brush.bar((0, 0), (0, -0.5), 0.1, (70, 56, 44), RUST)
    for x, y, radius in ((-0.2, -0.5, 0.35), (0.22, -0.55, 0.33), (0.0, -0.75, 0.36)):
        brush.round((x, y), (radius, 0.9 * radius), mix(green, WHITE, brush.between(0.0, 0.12)), LEAVES)
