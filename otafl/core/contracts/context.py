"""Tell a method of the round that it works in."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.learning import LocalData
from otafl.core.contracts.tensors import Hyper
from otafl.core.renamed import Renamed
from otafl.core.rng import Streams


@dataclass(frozen=True)
class Context(Renamed):
    """Say who takes part, under which numbers, when.

    Parameters
    ----------
    cohort : the N rows at hand.
    hyper : the method's stackable fields, [S] each.
    streams : where random numbers come from.
    round : from 0.
    """

    cohort: Cohort
    hyper: Hyper
    streams: Streams
    round: int

    def gather_hyper(self, name: str) -> Tensor:
        """Return a stackable field of each row's trial, [N]."""
        return self.hyper[name][self.cohort.trial]


@dataclass(frozen=True)
class LocalContext(Context):
    """Say with which data, too.

    Parameters
    ----------
    local_data : the local data of the rows at hand.
    """

    local_data: LocalData
