"""Limits of an over-the-air slot besides the power budget: energy, crashes and repeated updates.

A device that lacks energy reduces its amplitude. With E_k left for a group whose segments q would
take sum_q |p_kq|^2 e_kq, it sends with

    p_k min(1, sqrt(E_k / sum_q |p_kq|^2 e_kq)).

The receiver does not know of the reduction and keeps its scaling. Groups are sent one after the
other, and each has the energy that the groups before have left.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from otafl.core.contracts import Coefficients, Link, TransmitLimits
from otafl.power.base import cophase
from otafl.uplink.signal import Segments, Signal

ROUNDING = 1e-5
"""A rest of energy below this share of the last expense counts as zero."""

LIMITS = ("energy_budget", "sent_fraction", "num_copies", "full_power_mask", "reported_power")
"""Fields of `TransmitLimits` that are applied here."""


class Bounds:
    """Limits of one slot, applied to the groups of its payload in order.

    Parameters
    ----------
    limits : TransmitLimits
        Energy, number of copies and crashes of the slot.
    symbols : int
        Symbols of the slot.
    uses_per_symbol : int
        Channel uses of a symbol.
    turns : int
        Groups of devices that share it, one after the other.

    Attributes
    ----------
    energy : Tensor, float [S, K], or None
        Energy left to radiate, in noise variance times symbols; None without a bound.
    """

    def __init__(
        self, limits: TransmitLimits, symbols: int, uses_per_symbol: int = 1, turns: int = 1
    ) -> None:
        self.energy, self._copies = limits.energy_budget, limits.num_copies
        self._at_full_power, self._reported = limits.full_power_mask, limits.reported_power
        if self.energy is not None:
            if limits.energy_per_symbol is not None:  # of the circuits
                uses = uses_per_symbol * symbols / turns
                self.energy = self.energy - limits.energy_per_symbol * uses
            self.energy = self.energy.clamp_min(0.0)
        self._stop = (
            None if limits.sent_fraction is None else (limits.sent_fraction * symbols).floor()
        )

    def select_able(self, sends: Tensor) -> Tensor:
        """Select the transmitters that have energy left, [S, K] bool, out of `sends`."""
        return sends if self.energy is None else sends & (self.energy > 0)

    def scale_powers(self, m: Tensor) -> Tensor:
        """Return the mean symbol powers [S, Q, K] as transmitted.

        An update that is sent n times has n times the amplitude.
        """
        return m if self._copies is None else m * self._copies.square()[:, None]

    def report_powers(self, m: Tensor) -> Tensor:
        """Return the mean symbol powers [S, Q, K] that devices report, some of them falsely."""
        m = self.scale_powers(m)
        return m if self._reported is None else m * self._reported[:, None]

    def override(self, coefficients: Coefficients, link: Link, m: Tensor) -> Coefficients:
        """Set the transmit scalars of devices that send at full power whatever the policy says.

        Parameters
        ----------
        coefficients : Coefficients
            Scalars of the power policy, p [S, Q, K].
        link : Link
            Estimated scalar channels, whose phase the devices compensate, and budgets.
        m : Tensor, float64 [S, Q, K]
            Mean symbol powers.
        """
        if self._at_full_power is None:
            return coefficients
        mask = self._at_full_power[:, None] & link.eligible_mask & (m > 0)
        amplitude = (link.budget[:, None] / self.scale_powers(m)).sqrt()
        p = cophase(torch.where(mask, amplitude, 0.0), link.h)
        silent = coefficients.silent_mask
        return replace(
            coefficients,
            p=torch.where(mask, p, coefficients.p),
            active_mask=coefficients.active_mask | mask,
            silent_mask=None if silent is None else silent & ~mask,
        )

    def limit(
        self, coefficients: Coefficients, eligible_mask: Tensor, energy: Tensor
    ) -> Coefficients:
        """Limit the transmit scalars to the energy that devices have left.

        Parameters
        ----------
        coefficients : Coefficients
            Scalars of the power policy, p [S, Q, K].
        eligible_mask : Tensor, bool [S, K]
            Devices with the energy to transmit.
        energy : Tensor, float [S, Q, K]
            Sums of squares of the symbols before p.

        Returns
        -------
        Coefficients
            Scalars with the copies of repeated updates, within the energy.
        """
        if self._copies is None and self.energy is None:
            return coefficients
        p, active = coefficients.p, coefficients.active_mask
        if self._copies is not None:
            p = p * self._copies[:, None]
        if self.energy is not None:
            spent = (p.abs().square() * energy).sum(1)
            share = (self.energy / spent.clamp_min(1e-30)).clamp_max(1.0).sqrt()
            p, active = p * share[:, None], active & eligible_mask[:, None]
        return replace(coefficients, p=p, active_mask=active)

    def spend(self, energy: Tensor) -> None:
        """Subtract the energy [S, K] of a transmitted group from the energy left."""
        if self.energy is not None:
            left = self.energy - energy
            self.energy = left.where(left > ROUNDING * energy, 0.0)

    def cut_at_crash(self, sent: Signal, segments: Segments) -> tuple[Signal, Tensor | None]:
        """Cut a group to the symbols that devices send before they crash.

        Returns
        -------
        signal : Signal
            Rows, which are zero from the crash on.
        stop : Tensor, float [n, 1], or None
            Symbols of the group until the crash of each row; None if no device crashes.
        """
        if self._stop is None:
            return sent, None
        uses = segments.uses
        stop = sent.take_rows((self._stop - uses.start).clamp(0, len(uses)))[:, None]
        in_time = torch.arange(segments.symbols, device=stop.device) < stop
        known = torch.cat([in_time] * segments.halves, 1)[:, : sent.num_coordinates]
        return replace(sent, x=sent.x * known), stop
