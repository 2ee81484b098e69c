"""Shuffle the samples and deal them out evenly."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from otafl.data.dataset import Indices
from otafl.data.partitions.base import Partition


class Iid(Partition):
    """Give devices numbers of samples that differ by at most one."""

    shuffled: ClassVar[bool] = True

    name: Literal["iid"] = "iid"

    def deal(
        self, labels: Indices, devices: int, generator: np.random.Generator, owner: Indices | None
    ) -> list[Indices]:
        return np.array_split(generator.permutation(len(labels)), devices)
