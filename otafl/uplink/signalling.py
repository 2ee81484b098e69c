"""Charge time and energy of what an uplink slot takes beside its payload.

With n devices on air, a slot has C = C_pilots and side information + C_sync + n C_feedback channel
uses more, which last C / B. The devices radiate the first part in equal shares, each at its power
budget P_k: P_k (C_side / n) / B joules. The rest is the server's, which is on mains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import Field

from otafl.core import settings
from otafl.core.contracts import LinkBudget, LinkReport
from otafl.core.settings import declare_stackable


class Signalling:
    """Charge the signalling of S trials, whose sections differ in stackable fields alone."""

    class Settings(settings.Settings):
        """Say whether pilots, side information, synchronisation and feedback cost time and energy.
        By default they are counted in `side_symbols` and cost nothing else."""

        charge: bool = Field(
            False,
            description="charge them: the slot is longer by them at a channel use a second and "
            "hertz, and devices radiate their pilots and side information at full power",
        )
        sync_symbols: float = declare_stackable(
            0.0, ge=0, description="channel uses of the server's synchronisation signal in a slot"
        )
        feedback_symbols: float = declare_stackable(
            0.0,
            ge=0,
            description="channel uses of what the server tells each device that transmits in a "
            "slot: its grant, its precoder",
        )

    def __init__(self, sections: Sequence[Settings], budget: LinkBudget) -> None:
        self._charges, self._budget = sections[0].charge, budget
        like = budget.bandwidth_hz
        self._sync = like.new_tensor([one.sync_symbols for one in sections])
        self._feedback = like.new_tensor([one.feedback_symbols for one in sections])

    def charge(self, report: LinkReport) -> LinkReport:
        """Return the report of a slot with its signalling; a trial without a slot has none."""
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
