"""From a plan to owners: draw again or repair until every client is large enough, then say which images they are."""

from collections.abc import Callable

import numpy as np


def settle(
    plan: Callable[[], np.ndarray], min_size: int, redraws: int, counts: dict[str, int] | None = None
) -> np.ndarray:
    """The first of ``1 + redraws`` plans in which every client has ``min_size`` images, else the last one, repaired.

    Args:
        plan: Draws a plan [G, K].
        min_size: Fewest images of a client; K * min_size is at most the number of images.
        redraws: Plans that may be thrown away.
        counts: ``redraws`` done and images ``moved`` are added here.
    """
    attempt, drawn = 0, plan()
    while drawn.sum(axis=0).min() < min_size and attempt < redraws:
        attempt, drawn = attempt + 1, plan()
    fixed = fill_up(drawn, min_size)
    if counts is not None:
        counts["redraws"] += attempt
        counts["moved"] += int(abs(fixed - drawn).sum()) // 2
    return fixed


def fill_up(plan: np.ndarray, min_size: int) -> np.ndarray:
    """A plan in which every client has ``min_size`` images; no draw, so the result is a function of its input.

    The largest client gives to the smallest, first of the categories that the smallest has already, and of those
    the one that the largest has most of.
    """
    plan = plan.copy()
    sizes = plan.sum(axis=0)
    assert len(sizes) * min_size <= sizes.sum(), (len(sizes), min_size, sizes.sum())
    while sizes.min() < min_size:
        taker, giver = int(sizes.argmin()), int(sizes.argmax())
        stock = plan[:, giver]
        known = np.where(plan[:, taker] > 0, stock, 0)
        category = int((known if known.any() else stock).argmax())
        moved = min(min_size - sizes[taker], sizes[giver] - min_size, stock[category])
        for client, change in ((taker, moved), (giver, -moved)):
            plan[category, client] += change
            sizes[client] += change
    return plan


def deal(categories: np.ndarray, plan: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Owners by a plan, int64 [n]: which images of its category a client gets is drawn.

    Args:
        categories: int [n], in 0..G-1.
        plan: [G, K]; row g adds up to the images of category g.
        rng: Source of the draw.
    """
    order = rng.permutation(len(categories))
    order = order[np.argsort(categories[order], kind="stable")]
    owner = np.empty(len(categories), dtype=np.int64)
    owner[order] = np.repeat(np.tile(np.arange(plan.shape[1]), plan.shape[0]), plan.ravel())
    return owner


def plan_of(categories: np.ndarray, owner: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The plan [G, K] that these owners fulfil."""
    plan = np.zeros(shape, dtype=np.int64)
    np.add.at(plan, (categories, owner), 1)
    return plan


def move(categories: np.ndarray, owner: np.ndarray, plan: np.ndarray) -> np.ndarray:
    """Owners changed as little as the plan asks for; a client gives the last ones of its images."""
    owner = owner.copy()
    before = plan_of(categories, owner, (plan.shape[0], plan.shape[1]))
    for g in np.flatnonzero((plan != before).any(axis=1)):
        surplus = before[g] - plan[g]
        rows = np.flatnonzero(categories == g)
        given = [rows[owner[rows] == k][-surplus[k] :] for k in np.flatnonzero(surplus > 0)]
        owner[np.concatenate(given)] = np.repeat(np.arange(plan.shape[1]), np.clip(-surplus, 0, None))
    return owner
