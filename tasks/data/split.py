"""Train, validation and test splits: stratified over all labels, or given by the source. Made before any partition."""

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from models.errors import UserError
from models.settings.section import Section
from tasks.core.randomness import derive_seed
from tasks.data.stratification import iterative_stratification

_NAMES = ("train", "val", "test")


class SplitSettings(Section):
    """How images are divided into train, val and test."""

    scheme: Literal["stratified", "given"] = Field(
        "stratified",
        description="stratified: by labels and sites; given: taken from the source (lists, folders, a column).",
    )
    val: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="Share for validation; with scheme given a share of train, used if the source has no val images.",
    )
    test: float = Field(0.2, ge=0, lt=1, description="Share for testing; scheme given does not use it.")

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        if self.val + self.test >= 1:
            raise ValueError(f"val + test must be below 1, it is {self.val + self.test:g}")
        return self


def stratified_split(
    targets: np.ndarray, fractions: dict[str, float], seed: int, groups: np.ndarray | None = None
) -> np.ndarray:
    """Divide N images so that every label has nearly the same share in each split.

    Iterative stratification (Sechidis, Tsoumakas, Vlahavas 2011), rarest label first, with two rules for small sets:

    1. An image with a label that no other image (or group) has goes to train.
    2. A split with a positive fraction that is empty takes the train image whose rarest label is most frequent in
       train, as long as two images are left there.

    Args:
        targets: [N, C], non-zero where image n has label c.
        fractions: Share of ``train``, ``val`` and ``test``; they add to 1.
        seed: Breaks ties.
        groups: [N], images of one value stay together (each group counts as one image); ``None``: no groups.

    Returns:
        str [N], the split of each image.
    """
    total = sum(fractions.values())
    assert set(fractions) == set(_NAMES), fractions
    assert abs(total - 1) < 1e-9, fractions
    present = np.asarray(targets) != 0
    if not len(present):
        return np.array([], dtype="<U5")
    keys, unit = np.arange(len(present)), np.arange(len(present))
    if groups is not None:
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        order = np.argsort(first)  # units in the order in which they first appear, not in that of their hashes
        keys, unit = first[order], np.argsort(order)[inverse]
    merged = np.zeros((len(keys), present.shape[1]), dtype=bool)
    np.logical_or.at(merged, unit, present)
    shares = np.array([fractions[name] for name in _NAMES])
    return np.array(_NAMES)[_assign(merged, shares, seed)[unit]]


def _assign(merged: np.ndarray, shares: np.ndarray, seed: int) -> np.ndarray:
    """Return the split number of each unit."""
    result = np.zeros(len(merged), dtype=np.int64)
    counts = merged.sum(axis=0)
    free = np.flatnonzero(~merged[:, counts == 1].any(axis=1))
    if len(free):
        # Units pinned to train count towards its share.
        wanted = np.clip(shares * len(merged) - np.array([len(merged) - len(free), 0, 0]), 0, None)
        random = np.random.RandomState(derive_seed(seed, "split") % 2**32)
        result[free] = iterative_stratification(merged[free], wanted / wanted.sum(), random)
    for split in (1, 2):
        train = np.flatnonzero(result == 0)
        if shares[split] > 0 and not (result == split).any() and len(train) >= 2:
            frequency = np.where(merged[train], merged[train].sum(axis=0), len(merged) + 1).min(axis=1, initial=2**62)
            result[train[np.argmax(frequency)]] = split
    return result


def given_split(values: list[str | None], names: list[str], where: str) -> np.ndarray:
    """Return the splits that the source gives, str [N].

    Raises:
        UserError: An image has none, or none is for training.
    """
    missing = [name for name, value in zip(names, values, strict=True) if value not in _NAMES]
    if missing:
        raise UserError(
            "the source does not assign every image to a split",
            where=where,
            found=f"{len(missing)} of {len(names)} without one: {', '.join(missing[:5])}",
            hint="complete the lists, or set ingest.split.scheme to stratified",
        )
    for split, use in (("train", "training"), ("test", "testing")):
        if split not in values:
            hint = "set ingest.split.scheme to stratified"
            raise UserError(f"the source gives no image for {use}", where=where, hint=hint)
    return np.array(values, dtype="<U5")
