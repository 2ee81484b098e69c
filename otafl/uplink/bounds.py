"""Limit the transmissions of an over-the-air slot beside the power budget: by the energy that a
device has, a crash in the middle of it, an update that is sent twice.

A device that is short of energy turns its amplitude down: with E_k left for a group whose segments
q would take sum_q |p_kq|^2 e_kq, it sends with p_k min(1, sqrt(E_k / sum_q |p_kq|^2 e_kq)), and the
receiver, who does not know, keeps its scaling. Groups are sent one after the other and have what
those before have left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.constants import get_constant
from otafl.core.contracts import Coefficients, TransmitLimits
from otafl.uplink.segments import Segments
from otafl.uplink.signal import Signal

ROUNDING = 1e-5
"""Less than this share of what has just been spent is nothing left."""


class Bounds:
    """Keep to the limits of one slot, over the groups of its payload.

    energy: [S, K] left to radiate, in noise variance times symbols, None without bounds.

    Parameters
    ----------
    limits : of the slot.
    symbols : channel uses of the slot.
    """

    def __init__(self, limits: TransmitLimits, symbols: int) -> None:
        self.energy, self._copies = limits.energy_budget, limits.num_copies
        if self.energy is not None:
            circuits = (
                0.0 if limits.energy_per_symbol is None else limits.energy_per_symbol * symbols
            )
            self.energy = (self.energy - circuits).clamp_min(0.0)
        self._stop = (
            None if limits.sent_fraction is None else (limits.sent_fraction * symbols).floor()
        )

    def select_able(self, sends: Tensor) -> Tensor:
        """Return those that have the energy to send, [S, K] bool, out of those that would."""
        return sends if self.energy is None else sends & (self.energy > 0)

    def scale_powers(self, m: Tensor) -> Tensor:
        """Return the mean symbol powers [S, Q, K] of what goes out: an update that is sent twice
        has twice the amplitude."""
        return m if self._copies is None else m * self._copies.square()[:, None]

    def limit(
        self, coefficients: Coefficients, eligible_mask: Tensor, energy: Tensor
    ) -> Coefficients:
        """Limit the transmit scalars to what devices can pay for.

        Parameters
        ----------
        coefficients : what the policy wants, p [S, Q, K].
        able : [S, K] bool, who has the energy to send.
        energy : [S, Q, K] sums of squares of what is sent before p.
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
        """Take the energy [S, K] of a group that has been sent off what is left."""
        if self.energy is not None:
            left = self.energy - energy
            self.energy = left.where(left > ROUNDING * energy, 0.0)

    def cut_at_crash(self, sent: Signal, segments: Segments) -> SentPart | None:
        """Cut a group to what crashing devices send of it; None if no device crashes."""
        if self._stop is None:
            return None
        stop = sent.take_rows(segments.uses.count_before(self._stop).to(self._stop))[:, None]
        firsts = get_constant(tuple(first for first, _ in segments.bounds), stop.dtype, stop.device)
        lengths = get_constant(segments.lengths, stop.dtype, stop.device)
        symbols = torch.minimum((stop - firsts).clamp_min(0.0), lengths)
        in_time = torch.arange(segments.symbols, device=stop.device) < stop
        known = torch.cat([in_time] * segments.halves, 1)[:, : sent.num_coordinates]
        return SentPart(replace(sent, x=sent.x * known), sent.grid(symbols).mT, stop)


@dataclass(frozen=True)
class SentPart:
    """What was sent before a crash. signal: zeros from the crash on. symbols: [S, Q, K]
    channel uses that each device was on air. stop: [n, 1] those of the group that a row had."""

    signal: Signal
    symbols: Tensor
    stop: Tensor
