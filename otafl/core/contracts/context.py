"""Information about a round that the engine gives to a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from otafl.core.contracts.cohort import Cohort
from otafl.core.contracts.learning import LocalData
from otafl.core.contracts.tensors import Hyper
from otafl.core.rng import Round, Streams

Decision = TypeVar("Decision")


class Decisions:
    """Decisions that the host makes by the index of a round, noted to be made again.

    Parameters
    ----------
    round : int
        Index of the round.
    """

    def __init__(self, round: int) -> None:
        self._round = round
        self._made: list[tuple[Callable[[int], Any], Any]] = []

    def make(self, rule: Callable[[int], Decision]) -> Decision:
        """Return what a rule gives for the round, and note both."""
        value = rule(self._round)
        self._made.append((rule, value))
        return value

    def are_same(self, round: int) -> bool:
        """Return whether all rules so far give the same in another round."""
        return all(rule(round) == value for rule, value in self._made)


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
        Index of the round, from 0. It is a tensor in local work that is recorded in a CUDA graph,
        so use it in formulas and draws only, and `decide` for what the host decides by it.
    decisions : Decisions, optional
        Decisions of the host in local work that is recorded.
    """

    cohort: Cohort
    hyper: Hyper
    streams: Streams
    round: Round
    decisions: Decisions | None = field(default=None, kw_only=True)

    def decide(self, rule: Callable[[int], Decision]) -> Decision:
        """Decide something on the host by the index of the round.

        Parameters
        ----------
        rule : callable
            Function of the index, an int, and of nothing that changes from round to round. A
            recorded round is replayed only where the rule returns an equal value.

        Returns
        -------
        object
            What the rule returns.
        """
        if self.decisions is None:
            return rule(self.host_round)
        return self.decisions.make(rule)

    @property
    def host_round(self) -> int:
        """The index of the round, as the host knows it; local work that asks is not recorded."""
        return int(self.round)

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
