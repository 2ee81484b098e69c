"""What a delivery cost, added up over the groups of a payload."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.contracts import Blocks, LinkBudget, LinkReport


class Tally:
    """Sums over the uplink groups of one delivery; shapes as in `LinkReport`."""

    def __init__(self, budget: LinkBudget, population: int) -> None:
        self.budget = budget
        zeros = torch.zeros_like(budget.budget)
        self.symbols, self.bits, self.side = zeros, zeros, zeros
        self.airtime_s, self._error, self._target = zeros, zeros, zeros
        self._energy = zeros[:, None].expand(-1, population)  # |p|^2 |x|^2 in noise units
        self._sent = self._energy
        self.energy_j = self._energy
        self._on = self._energy > 0
        self.saved: Blocks = {}

    def slot(self, symbols: Tensor) -> None:
        """A group's channel uses [S], one a second and hertz."""
        self.symbols = self.symbols + symbols
        self.airtime_s = self.airtime_s + symbols / self.budget.bandwidth_hz

    def radiate(self, energy: Tensor, symbols: Tensor, on_air: Tensor) -> None:
        """Each device's energy [S, K] in noise units over its own symbols [S, K], and whether it
        was on air [S, K] bool. A symbol lasts 1 / bandwidth."""
        self._energy = self._energy + energy
        self._sent = self._sent + symbols
        self._on = self._on | on_air
        watts = self.budget.tx_power_w / self.budget.budget
        self.energy_j = self.energy_j + energy * (watts / self.budget.bandwidth_hz)[:, None]

    def error(self, squared: Tensor, target: Tensor) -> None:
        """Squared aggregation error and squared error-free aggregate, [S]."""
        self._error = self._error + squared
        self._target = self._target + target

    def report(self) -> LinkReport:
        nmse = torch.where(self._error == 0, 0.0, self._error / self._target)
        return LinkReport(
            symbols=self.symbols,
            bits=self.bits,
            side_symbols=self.side,
            airtime_s=self.airtime_s,
            participants=self._on.sum(1).to(self.symbols.dtype),
            power=self._energy / self._sent.clamp_min(1.0),
            energy_j=self.energy_j,
            nmse=nmse,
            saved=self.saved,
        )
