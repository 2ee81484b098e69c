"""Information about a round that the engine gives to a method."""

from __future__ import annotations

from dataclasses import dataclass

from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.learning import LocalData
from otafl.core.contracts.tensors import Hyper
from otafl.core.lazy import Tensor
from otafl.core.renamed import Renamed
from otafl.core.rng import Streams


@dataclass(frozen=True)
class Context(Renamed):
    """Participants, hyperparameters, random streams and index of a round.

    Parameters
    ----------
    cohort : Cohort
        The N rows, of the round or of a chunk.
    hyper : mapping of str to Tensor [S]
        Stackable settings of the method.
    streams : Streams
        Source of random numbers.
    round : int
        Index of the round, from 0.
    """

    cohort: Cohort
    hyper: Hyper
    streams: Streams
    round: int

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
    """

    local_data: LocalData
