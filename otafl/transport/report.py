"""Add up over the groups of a payload what was received and what it cost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, LinkBudget, LinkReport, Received
from otafl.transport.superpose import Signal

TINY = 1e-30


class Tally:
    """Sum up the cost of one delivery; shapes as in `LinkReport`.

    Parameters
    ----------
    budget : powers and bandwidth of S trials.
    population : K.
    """

    def __init__(self, budget: LinkBudget, population: int) -> None:
        self.budget = budget
        self._population = population
        self._sums: dict[str, Tensor] = {}
        self._some: dict[str, Tensor] = {}
        self.saved: Blocks = {}

    def slot(self, symbols: Tensor) -> None:
        """Add a group's channel uses [S], one a second and hertz."""
        self._add("symbols", symbols)

    def carry(self, bits: Tensor) -> None:
        """Add a group's bits [S] on a digital uplink."""
        self._add("bits", bits)

    def side_symbols(self, symbols: Tensor) -> None:
        """Add side information [S], in channel uses."""
        self._add("side", symbols)

    def radiate(self, energy: Tensor, symbols: Tensor, on_air: Tensor) -> None:
        """Add each device's energy [S, K] in noise units over its own symbols [S, K], and whether
        it was on air [S, K] bool. A symbol lasts 1 / bandwidth."""
        self._add("energy", energy)
        self._add("sent", symbols)
        self._or("on", on_air)

    def hear(self, sent: Tensor, received: Tensor) -> None:
        """Note who has sent a group over the uplink, and whom the server has received, [S, K]
        bool."""
        self._or("tried", sent)
        self._or("heard", received)

    def hear_freely(self, sent: Tensor) -> None:
        """Note who has sent a group on the ideal route, [S, K] bool. Who sends over the uplink too
        is heard as that is received."""
        self._or("free", sent)

    def error(self, squared: Tensor, target: Tensor) -> None:
        """Add the squared aggregation error and the squared error-free aggregate, [S]."""
        self._add("error", squared)
        self._add("target", target)

    def _add(self, name: str, value: Tensor) -> None:
        self._sums[name] = self._sums[name] + value if name in self._sums else value

    def _or(self, name: str, some: Tensor) -> None:
        self._some[name] = self._some[name] | some if name in self._some else some

    def report(self) -> LinkReport:
        """Return the report of the delivery."""
        zeros = torch.zeros_like(self.budget.bandwidth_hz)
        none = zeros[:, None].expand(-1, self._population)
        on_air, heard = self._some.get("on"), self._some.get("heard")
        if "free" in self._some:
            free = self._some["free"]
            heard = free if heard is None else heard | (free & ~self._some["tried"])
        symbols = self._sums.get("symbols", zeros)
        energy = self._sums.get("energy", none)
        nmse = zeros
        if "error" in self._sums:  # no error is none, also where the aggregate is zero
            nmse = self._sums["error"] / self._sums["target"].clamp_min(TINY)
        return LinkReport(
            symbols=symbols,
            bits=self._sums.get("bits", zeros),
            side_symbols=self._sums.get("side", zeros),
            airtime_s=symbols / self.budget.bandwidth_hz,
            participants=zeros if on_air is None else on_air.sum(1).to(zeros.dtype),
            heard=none > 0 if heard is None else heard,
            power=energy / self._sums["sent"].clamp_min(1.0) if "sent" in self._sums else none,
            energy_j=energy * self.budget.unit_energy_j[:, None],
            on_air_s=self._sums.get("sent", none) / self.budget.bandwidth_hz[:, None],
            nmse=nmse,
            saved=self.saved,
        )


class Gathered:
    """Gather what is received of a payload, group by group."""

    def __init__(self) -> None:
        self._means: list[Any] = []
        self._counts: list[Any] = []
        self._arrived: Tensor | None = None
        self._every_trial = False

    def add(self, mean: Blocks, count: Tensor | Blocks) -> None:
        """Add a group's mean, blocks [S, *shape], and the weight that arrived."""
        self._means.append(mean)
        self._counts.append(count)

    def arrived(self, sent: Signal, weight: Tensor | None = None) -> None:
        """Note that this weight [S] of an uplink group arrived; None: every row of every trial."""
        if weight is None and min(sent.cohort.counts) > 0:
            self._every_trial = True
            return
        some = (sent.cohort.rows_of if weight is None else weight) > 0
        self._arrived = some if self._arrived is None else self._arrived | some

    def received(
        self,
        each: tuple[Blocks, ...] | None = None,
        came: tuple[Tensor | None, ...] | None = None,
    ) -> Received:
        """Return what the server gets; each, came: as in `Received`, where devices are told
        apart."""
        if came is not None and all(rows is None for rows in came):
            came = None
        alive = None if self._every_trial else self._arrived
        return Received(tuple(self._means), tuple(self._counts), each, alive, came)
