"""Tell a method of the round that it works in."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from otafl.core.contracts.blocks import Hyper
from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.learning import LocalData
from otafl.core.renamed import old_name
from otafl.core.rng import Streams


@dataclass(frozen=True)
class Context:
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

    of_rows = old_name("of_rows", "gather_hyper")


@dataclass(frozen=True)
class LocalContext(Context):
    """Say with which data, too.

    Parameters
    ----------
    work : the local data of the rows at hand.
    """

    work: LocalData
