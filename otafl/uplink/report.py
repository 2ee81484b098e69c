"""Coefficients with which a group was sent, as saved variables `link_*`, and control overhead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from otafl.core import settings
from otafl.core.contracts import LinkBudget, LinkReport, Tensors
from otafl.core.settings import declare_stackable
from otafl.uplink.transmission import Transmission


def collect_coefficients(on_air: Transmission, gram: bool) -> Tensors:
    r"""Return the coefficients from which the aggregation error follows, by name.

    Parameters
    ----------
    on_air : Transmission
        Transmission of the group.
    gram : bool
        Whether to add the Gram matrices of the signals.

    Returns
    -------
    Tensors
        Name and group -> coefficients, as in the variables `link_*`.

    Notes
    -----
    In a segment with Gram matrix G and gains g_k, the squared error is, plus the noise's part,

    .. math::

        a^H G a, \quad a_k = g_k w_k / W - w_k
    """
    sent, segments = on_air.sent, on_air.segments
    values = {
        "h": on_air.h,
        "h_hat": on_air.h_hat,
        "p": on_air.scalars.p,
        "eta": on_air.scalars.eta,
        "c": on_air.gain.real,
        "active": on_air.scalars.active_mask,
        "m": on_air.power,
        "noise": on_air.noise,
        "weight": sent.grid(sent.weight),
    }
    if on_air.stop is not None:
        values["sent"] = on_air.sent_symbols
    if gram:
        rows, *second = segments.parts(sent.grid(sent.x).flatten(0, 1))
        if second:  # perhaps one symbol short
            missing = rows.shape[1] - second[0].shape[1]
            rows = torch.complex(rows, torch.nn.functional.pad(second[0], (0, missing)))
        rows = rows.unflatten(0, on_air.h.shape[::2])
        if segments.are_short(len(rows) * rows.shape[1] ** 2):
            products = rows[:, :, None].conj() * rows[:, None]
            values["gram"] = segments.sum(products).movedim(-1, 1)
        else:
            parts = [rows[..., first:stop] for first, stop in segments.bounds]
            values["gram"] = torch.stack([torch.matmul(part.conj(), part.mT) for part in parts], 1)
    return {f"{name}/{sent.index}": value for name, value in values.items()}


class Signalling:
    """Time and energy of the control overhead of an uplink slot, in S trials.

    With n devices on air, a slot needs C = C_side + C_sync + n C_feedback further channel uses,
    which last C / B seconds. C_side are pilots and side information. The devices radiate them in
    equal shares, each at its power budget P_k, which costs P_k (C_side / n) / B joules. The server
    radiates the rest, and it is on mains.

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
