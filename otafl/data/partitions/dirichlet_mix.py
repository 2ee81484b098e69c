"""Give devices equally many samples, each with a class mix from a symmetric Dirichlet.

Once a class is used up, a device draws from the classes that are left. Devices choose in random
order, since those that come last must take what is left.

References
----------
Hsu, Qi, Brown 2019, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.data.dataset import Indices
from otafl.data.partitions.base import Counts, Deck, Partition


class DirichletMix(Partition):
    """Give each device its samples in random order."""

    shuffled: ClassVar[bool] = True

    name: Literal["dirichlet_mix"] = "dirichlet_mix"
    alpha: float = Field(0.5, gt=0)
    """concentration; small is heterogeneous"""
    samples_per_device: int | None = Field(None, ge=1)
    """samples a device holds; by default all, dealt out evenly"""

    def fits(self, counts: Counts) -> None:
        counts.check_each("samples_per_device", self._each(counts.samples, counts.devices))

    def sizes(self, counts: Counts) -> Sequence[int]:
        return [self._each(counts.samples, counts.devices)] * counts.devices

    def _each(self, samples: int, devices: int) -> int:
        return self.samples_per_device or samples // devices

    def deal(self, deck: Deck) -> list[Indices]:
        self.fits(deck.counts)
        devices, generator = deck.devices, deck.generator
        each = self._each(len(deck.labels), devices)
        members = deck.by_class()
        given = np.zeros(len(members), np.int64)
        stock = np.array([len(own) for own in members])
        parts: list[Indices] = [np.empty(0, np.int64)] * devices
        for device in generator.permutation(devices):
            count = _counts(each, stock - given, self.alpha, generator)
            pieces = [
                own[start : start + n] for own, start, n in zip(members, given, count, strict=True)
            ]
            given += count
            parts[device] = generator.permutation(np.concatenate(pieces))
        return parts


def _counts(each: int, stock: Indices, alpha: float, generator: np.random.Generator) -> Indices:
    """Draw how many samples of each class a device takes. What a class cannot give is drawn again
    from the others: some parts of a Dirichlet, made to sum to one, are a Dirichlet of their own."""
    taken = np.zeros_like(stock)
    mix = generator.dirichlet(np.full(len(stock), alpha))
    while taken.sum() < each:
        left = stock - taken
        mix = np.where(left > 0, mix, 0.0)
        if mix.sum() == 0.0:  # the others' parts are too small for a float
            some = left > 0
            mix[some] = generator.dirichlet(np.full(some.sum(), alpha))
        wanted = generator.multinomial(each - taken.sum(), mix / mix.sum())
        taken += np.minimum(wanted, left)
    return taken
