"""Split each class over the devices by proportions from a symmetric Dirichlet.

References
----------
Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks", section 4.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.dealt import Dealt
from otafl.data.partitions.base import Counts, Deck, Partition

_TRIES = 100


class Dirichlet(Partition):
    """Draw proportions again until every device has enough samples."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(0.5, gt=0)
    """concentration; small is heterogeneous"""
    min_samples: int = Field(1, ge=1)
    """a device's smallest share; redrawn until met"""

    def fits(self, counts: Counts) -> None:
        counts.check_each("min_samples", self.min_samples)

    def deal(self, deck: Deck) -> Dealt:
        self.fits(deck.counts)
        classes, devices, samples = deck.by_class(), deck.devices, len(deck.labels)
        for _ in range(_TRIES):
            parts = self._once(classes, deck)
            if parts.counts.min() >= self.min_samples:
                return parts
        raise UserError(
            f"data.partition.alpha: {self.alpha} gave none of {_TRIES} draws in which each of "
            f"{devices} devices gets {self.min_samples} of {samples} samples; use a larger "
            "alpha, a smaller data.partition.min_samples or a smaller devices.count"
        )

    def _once(self, classes: list[Indices], deck: Deck) -> Dealt:
        """Deal samples out by one draw; a device's part can be empty."""
        device = []
        for members in classes:
            share = deck.generator.dirichlet(np.full(deck.devices, self.alpha))
            cuts = np.rint(np.cumsum(share)[:-1] * len(members)).astype(np.int64)
            sizes = np.diff(cuts, prepend=0, append=len(members))
            device.append(np.repeat(np.arange(deck.devices), sizes))
        return Dealt.grouped(np.concatenate(classes), np.concatenate(device), deck.devices)
