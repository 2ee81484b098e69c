"""Shuffle the samples and deal them out evenly."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.data.dataset import Indices
from otafl.data.partitions.base import Deck, Partition


class Iid(Partition):
    """Give devices numbers of samples that differ by at most one."""

    shuffled: ClassVar[bool] = True

    name: Literal["iid"] = "iid"

    def deal(self, deck: Deck) -> list[Indices]:
        return np.array_split(deck.shuffled(), deck.devices)
