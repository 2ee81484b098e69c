"""Information about a round that the engine gives to a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.learning import LocalData
from otafl.core.contracts.tensors import Hyper
from otafl.core.rng import Round, Streams


@dataclass(frozen=True)
class Context:
    """Participants, hyperparameters, random streams and index of a round.

    Parameters
    ----------
    cohort : Cohort
        The N rows, of the round or of a chunk.
    hyper : mapping of str to Tensor [S]
        Stackable settings of the method.
    streams : Streams
        Source of random numbers.
    round : int, or Tensor, int64 []
        Index of the round, from 0. It may be a tensor in local work on a GPU, so that work for
        which the host decides by it (`int(context.round)`) is slower there.
    """

    cohort: Cohort
    hyper: Hyper
    streams: Streams
    round: Round

    def gather_hyper(self, name: str) -> Tensor:
        """Return a stackable setting for each row.

        Parameters
        ----------
        name : str
            Name of the setting.

        Returns
        -------
        Tensor [N]
            The value of the row's trial.
        """
        return self.hyper[name][self.cohort.trial]


@dataclass(frozen=True)
class LocalContext(Context):
    """Context of local work, with the data of the devices.

    Parameters
    ----------
    local_data : LocalData
        Local data of the rows.
    reserve_fn : callable, optional
        Function of received parameters [n, P] that returns memory for increments to them, at their
        place in the payload of all rows. Without it increments have memory of their own.
    """

    local_data: LocalData
    reserve_fn: Callable[[Tensor], Tensor] | None = field(default=None, kw_only=True)
