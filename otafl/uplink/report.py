"""Add up over the groups of a payload what sending them costs."""

from __future__ import annotations

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, LinkBudget, LinkReport

TINY = 1e-30


class Tally:
    """Sum up the cost of one delivery; shapes as in `LinkReport`.

    saved: coefficients to report, by name.

    Parameters
    ----------
    budget : powers and bandwidth of S trials.
    population : K.
    """

    def __init__(self, budget: LinkBudget, population: int) -> None:
        self._budget, self._population = budget, population
        self._sums: dict[str, Tensor] = {}
        self._some: dict[str, Tensor] = {}
        self.saved: Blocks = {}

    def add(self, **amounts: Tensor) -> None:
        """Add amounts of a group to those of the groups before.

        Parameters
        ----------
        symbols : [S] channel uses, one a second and hertz.
        bits : [S], on a digital uplink.
        side : [S] side information, in channel uses.
        energy : [S, K], of each device, in noise units.
        sent : [S, K] channel uses in which a device transmits, 1 / bandwidth each.
        """
        for name, value in amounts.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def scale(self, **factors: float) -> None:
        """Multiply amounts so far, named as in `add`; in double precision, so that whole numbers
        that become others are whole."""
        for name, factor in factors.items():
            if name in self._sums:
                value = self._sums[name]
                self._sums[name] = (value.double() * factor).to(value.dtype)

    def note(self, **who: Tensor) -> None:
        """Note devices, [S, K] bool, beside those of the groups before.

        Parameters
        ----------
        on_air : they were on air.
        """
        for name, some in who.items():
            self._some[name] = self._some[name] | some if name in self._some else some

    def error(self, squared: Tensor, target: Tensor) -> None:
        """Add the squared aggregation error and the squared error-free aggregate, [S]."""
        self.add(error=squared, target=target)

    def report(self) -> LinkReport:
        """Return the report of the delivery."""
        sums, some = self._sums, self._some
        zeros = torch.zeros_like(self._budget.bandwidth_hz)
        none = zeros[:, None].expand(-1, self._population)
        symbols = sums.get("symbols", zeros)
        energy, sent = sums.get("energy", none), sums.get("sent", none)
        nmse = zeros
        if "error" in sums:  # no error is none, also where the aggregate is zero
            nmse = sums["error"] / sums["target"].clamp_min(TINY)
        return LinkReport(
            symbols=symbols,
            bits=sums.get("bits", zeros),
            side_symbols=sums.get("side", zeros),
            airtime_s=symbols / self._budget.bandwidth_hz,
            participants=some.get("on_air", none > 0).sum(1).to(zeros.dtype),
            power=energy / sent.clamp_min(1.0),
            energy_j=energy * self._budget.unit_energy_j[:, None],
            on_air_s=sent / self._budget.bandwidth_hz[:, None],
            nmse=nmse,
            saved=self.saved,
        )
