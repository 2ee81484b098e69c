"""Time and energy of what an uplink slot takes beside its payload.

With n devices on air, a slot has C = C_pilots and side information + C_sync + n C_feedback channel
uses more, which last C / B. The devices radiate the first part in equal shares, each at its power
budget P_k: P_k (C_side / n) / B joules. The rest is the server's, which is on mains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from otafl.core.contracts import LinkBudget, LinkReport
from otafl.transport.config_signalling import SignallingConfig


class Signalling:
    """Of S trials, which differ in stackable fields alone."""

    def __init__(self, configs: Sequence[SignallingConfig], budget: LinkBudget) -> None:
        self._charges, self._budget = configs[0].charge, budget
        like = budget.bandwidth_hz
        self._sync = like.new_tensor([one.sync_symbols for one in configs])
        self._feedback = like.new_tensor([one.feedback_symbols for one in configs])

    def charge(self, report: LinkReport) -> LinkReport:
        """The report of a slot with its signalling; a trial without a slot has none."""
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
