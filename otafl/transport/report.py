"""What a delivery cost, added up over the groups of a payload."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, LinkBudget, LinkReport

TINY = 1e-30


class Tally:
    """Sums over the uplink groups of one delivery; shapes as in `LinkReport`."""

    def __init__(self, budget: LinkBudget, population: int) -> None:
        self.budget = budget
        self._population = population
        self._sums: Blocks = {}
        self._on: Tensor | None = None
        self.saved: Blocks = {}

    def slot(self, symbols: Tensor) -> None:
        """A group's channel uses [S], one a second and hertz."""
        self._add("symbols", symbols)

    def carry(self, bits: Tensor) -> None:
        """A group's bits [S] on a digital uplink."""
        self._add("bits", bits)

    def side_symbols(self, symbols: Tensor) -> None:
        """Side information [S], in channel uses."""
        self._add("side", symbols)

    def radiate(self, energy: Tensor, symbols: Tensor, on_air: Tensor) -> None:
        """Each device's energy [S, K] in noise units over its own symbols [S, K], and whether it
        was on air [S, K] bool. A symbol lasts 1 / bandwidth."""
        self._add("energy", energy)
        self._add("sent", symbols)
        self._on = on_air if self._on is None else self._on | on_air

    def error(self, squared: Tensor, target: Tensor) -> None:
        """Squared aggregation error and squared error-free aggregate, [S]."""
        self._add("error", squared)
        self._add("target", target)

    def _add(self, name: str, value: Tensor) -> None:
        self._sums[name] = self._sums[name] + value if name in self._sums else value

    def report(self) -> LinkReport:
        zeros = torch.zeros_like(self.budget.bandwidth_hz)
        none = zeros[:, None].expand(-1, self._population)
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
            participants=zeros if self._on is None else self._on.sum(1).to(zeros.dtype),
            power=energy / self._sums["sent"].clamp_min(1.0) if "sent" in self._sums else none,
            energy_j=energy * self.budget.unit_energy_j[:, None],
            on_air_s=self._sums.get("sent", none) / self.budget.bandwidth_hz[:, None],
            nmse=nmse,
            saved=self.saved,
        )
