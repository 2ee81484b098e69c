"""Shuffle the samples and deal out parts whose sizes follow a log-normal law.

References
----------
Li et al. 2020, "Federated Optimization in Heterogeneous Networks", section 5.1.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from otafl.data.dealt import Dealt
from otafl.data.partitions.base import MOST_SIGMA, Counts, Deck, Partition, cut_lognormal


class Lognormal(Partition):
    """Give devices numbers of samples in proportion to log-normal numbers."""

    shuffled: ClassVar[bool] = True

    name: Literal["lognormal"] = "lognormal"
    sigma: float = Field(1.0, ge=0, le=MOST_SIGMA)
    """deviation of the logarithm of a device's size"""
    min_samples: int = Field(1, ge=1)
    """what every device gets first"""

    def fits(self, counts: Counts) -> None:
        counts.check_each("min_samples", self.min_samples)

    def deal(self, deck: Deck) -> Dealt:
        self.fits(deck.counts)
        least = self.min_samples
        return cut_lognormal(deck.shuffled(), deck.devices, self.sigma, least, deck.generator)
