"""Time and energy of an uplink slot's control overhead.

With n devices on air, a slot needs C = C_side + C_sync + n C_feedback further channel uses, which
last C / B seconds. C_side are pilots and side information. The devices radiate them in equal
shares, each at its power budget P_k, which costs P_k (C_side / n) / B joules. The server radiates
the rest, and it is on mains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from otafl.core import settings
from otafl.core.contracts import LinkBudget, LinkReport
from otafl.core.settings import declare_stackable


class Signalling:
    """Charge for the control overhead of S trials.

    Parameters
    ----------
    sections : sequence of Settings [S]
        Settings of the trials, which differ only in stackable fields.
    budget : LinkBudget
        Power budgets and bandwidth of the trials.
    """

    class Settings(settings.Settings):
        """Section `signalling`: whether control overhead costs time and energy.

        Pilots, side information, synchronisation and feedback are counted in `side_symbols`, and by
        default cost nothing else.
        """

        charge: bool = False
        """whether overhead costs time, one channel use per second and hertz, and energy, by pilots
        and side information at full power; by default it is only counted"""
        sync_symbols: float = declare_stackable(0.0, ge=0)
        """channel uses of the server's synchronisation signal in a slot; none by default"""
        feedback_symbols: float = declare_stackable(0.0, ge=0)
        """channel uses of the server's feedback to each device that transmits in a slot, such as
        its grant and its precoder; none by default"""

    def __init__(self, sections: Sequence[Settings], budget: LinkBudget) -> None:
        self._charges, self._budget = sections[0].charge, budget
        like = budget.bandwidth_hz
        self._sync = like.new_tensor([one.sync_symbols for one in sections])
        self._feedback = like.new_tensor([one.feedback_symbols for one in sections])

    def charge(self, report: LinkReport) -> LinkReport:
        """Return the report of a slot with its control overhead.

        A trial without a slot has no overhead.
        """
        if not self._charges:
            return report
        on_air = report.power > 0
        devices = on_air.sum(1).to(report.symbols.dtype)
        slot = (report.symbols > 0) * self._sync
        side = report.side_symbols + slot + devices * self._feedback
        own = report.side_symbols / devices.clamp_min(1.0)
        radiated = torch.where(on_air, own[:, None] * self._budget.budget, 0.0)
        return replace(
            report,
            side_symbols=side,
            airtime_s=report.airtime_s + side / self._budget.bandwidth_hz,
            on_air_s=report.on_air_s + (on_air * own[:, None]) / self._budget.bandwidth_hz[:, None],
            energy_j=report.energy_j + radiated * self._budget.unit_energy_j[:, None],
        )
