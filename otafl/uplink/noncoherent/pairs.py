"""Lay a payload out on pairs of channel uses, of which each device takes the one of a real's sign.

A real has two channel uses, + and -, side by side in one cell of the channel. A device that sends
the magnitude v of a real puts the energy p^2 v, with a random phase, on the use of its sign and
nothing on the other. So nobody has to know a channel, and m_k = mean v / 2 is the mean energy of a
use before p^2. Lengths here are in pairs: a group of P reals has P pairs, 2 P channel uses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from otafl.core.choices import Choice
from otafl.core.contracts import LEAST_SNR, NOISE_VARIANCE, Blocks, Coefficients, Cohort
from otafl.core.problems import Problem, problem
from otafl.uplink.bounds import Bounds, SentPart
from otafl.uplink.delivery import Delivery
from otafl.uplink.impairments.impairments import whole
from otafl.uplink.interleaving import Uses, in_order
from otafl.uplink.report import Saves
from otafl.uplink.segments import Segments, cut
from otafl.uplink.signal import Signal

BENT = ("timing_offset", "clip_db", "adc_bits")
"""Impairments that energies on pairs are not computed with."""


def refused(scenario: Any) -> Iterator[Problem]:
    """Yield what a scenario asks for that takes channel knowledge, or that is not computed."""
    name = scenario.transport.name
    for key, why in (
        ("csi", "no channel is estimated"),
        ("receiver", "the energies of all antennas are added"),
    ):
        if getattr(scenario, key) != Choice(key).default():
            yield problem(
                f"'{getattr(scenario, key).name}' does not go with transport: '{name}', which uses "
                f"no phases: {why}; leave {key} out",
                key,
                "transport",
            )
    if scenario.power.name != "full" and scenario.power != Choice("power").default():
        yield problem(
            f"'{scenario.power.name}' does not go with transport: '{name}', whose devices know no "
            "channel to set their power by; leave power out, or power: full",
            "power",
            "transport",
        )
    yield from whole(scenario, BENT, "energies")


TINY = 1e-30
"""Least cost that a scale answers to; its inverse is finite in single precision."""


@dataclass(frozen=True)
class Slot:
    """Hold what the groups of a payload share.

    h: [S, K, A, C] with the large-scale gain, C cells flattened over (B, F). stops: the pair after
    which each cell ends. gain, budget: [S, K]. bounds: what limits the slot, a pair its unit.
    copies: [S, K] times that a device sends its update, None for once.
    """

    delivery: Delivery
    h: Tensor
    stops: list[int]
    gain: Tensor
    budget: Tensor
    bounds: Bounds
    uses: list[Uses]
    copies: Tensor | None

    def able(self, sent: Signal) -> Tensor:
        """Return who can send, [S, K] bool: who has something to send, energy, and a channel."""
        return self.bounds.able(sent.on_air()) & (self.budget * self.gain >= LEAST_SNR)

    def scale(self, sent: Signal) -> Tensor:
        """Return what rows are multiplied with to be added up, [n]: K w_k for a mean, and the times
        that a device sends them."""
        return sent.scale if self.copies is None else sent.scale * sent.at_rows(self.copies)

    def common(self, able: Tensor, cost: Tensor) -> Tensor:
        """Return the largest scale [S, 1] of all energies that is within everybody's budget.

        Parameters
        ----------
        able : [S, K] bool, who sends.
        cost : [S, K], mean energy of a channel use at scale one.
        """
        most = (able * cost / self.budget.clamp_min(TINY)).amax(1, keepdim=True)
        return torch.where(most > 0, 1.0 / most.clamp_min(TINY), 1.0)


def lay_out(delivery: Delivery) -> Slot:
    """Lay out the slot of a delivery: the groups one after the other, two channel uses a real."""
    channel, limits = delivery.channel, delivery.limits
    lengths = [sent.reals for sent in delivery.uplink]
    pairs = max(1, sum(lengths))
    h = channel.over(2 * pairs)
    circuits = None if limits.per_symbol is None else 2.0 * limits.per_symbol
    return Slot(
        delivery=delivery,
        h=channel.gain.sqrt()[:, :, None, None] * h.flatten(3),
        stops=[-(-stop // 2) for stop in channel.stops(h, 2 * pairs)],
        gain=channel.gain,
        budget=delivery.power_budget,
        bounds=Bounds(replace(limits, copies=None, per_symbol=circuits), pairs),
        uses=in_order(lengths),
        copies=limits.copies,
    )


@dataclass(frozen=True)
class OnPairs:
    """Hold a group's transmission.

    scale: [n], of the magnitudes of the rows. p: [S, K] amplitude of a unit magnitude, after the
    energy that a device has left. active: [S, K] bool. energy: [S, K] sum of the scaled magnitudes
    that a device sends, up to its crash. part: what crashing devices have sent, None where none do.
    """

    slot: Slot
    sent: Signal
    segments: Segments
    scale: Tensor
    p: Tensor
    active: Tensor
    energy: Tensor
    part: SentPart | None

    @property
    def signal(self) -> Signal:
        """Return the rows as far as they are sent."""
        return self.sent if self.part is None else self.part.signal

    @property
    def row_amplitude(self) -> Tensor:
        """Return what the roots of a row's magnitudes are sent with, [n]."""
        return self.sent.at_rows(self.p) * self.scale.sqrt()

    @property
    def stop(self) -> Tensor | None:
        """Return the pairs that a row has until its crash, [n, 1]; None where none crash."""
        return None if self.part is None else self.part.stop

    @property
    def antennas(self) -> int:
        """Return A."""
        return self.slot.h.shape[2]

    @functools.cached_property
    def active_rows(self) -> Tensor:
        """Return 1 for the rows on air, else 0: [n]."""
        return self.sent.at_rows(self.active).to(self.sent.x.dtype)

    @functools.cached_property
    def weight(self) -> Tensor:
        """Return the weight on air, [S]."""
        return self.sent.by_trial(self.sent.weight * self.active_rows)

    def reached(self) -> Tensor:
        """Return the weight on air that knows each real, [S, P], of a group with a mask."""
        rows = (self.sent.weight * self.active_rows)[:, None]
        return self.sent.sum(rows, self.sent.mask)[:, 0]

    def heard(self) -> Callable[[], Tensor]:
        """Return a function as in `LinkReport.heard`; it keeps nothing of the payload's size."""
        active = self.active_rows > 0
        return functools.partial(_heard, self.sent.cohort, active, self.stop, self.sent.reals)

    def account(self, eta: Tensor, saves: Saves) -> None:
        """Add up channel uses and energy, and note who was on air; eta: [S] what received energies
        are divided by."""
        delivery, active = self.slot.delivery, self.active
        senders = self.sent.cohort.rows_of
        pairs = torch.full_like(self.p, float(self.segments.symbols)) * active
        if self.part is not None:
            pairs = self.part.symbols.sum(1) * active
        spent = self.p.square() * self.energy
        symbols = (senders > 0) * (2.0 * self.segments.symbols)
        delivery.tally.add(symbols=symbols, energy=spent, sent=2.0 * pairs)
        delivery.tally.note(on_air=active)
        delivery.arrive(self.sent, None if bool(active.any(1).all()) else self.weight)
        if saves.link:
            delivery.tally.saved |= self._saved(eta, saves.gram)
        self.slot.bounds.spend(spent)

    def _saved(self, eta: Tensor, gram: bool) -> Blocks:
        """Return the coefficients, names and shapes as of `over_the_air`: h the root mean square
        over the antennas, c = |h p|^2 / eta the gain of a device's magnitudes, m their mean a
        channel use."""
        h = self.slot.h[..., list(self.segments.cells)].abs().square().mean(2).sqrt().mT
        eta = eta[:, None].expand_as(h[..., 0])
        p = self.p[:, None].expand_as(h)
        values = {
            "h": h + 0j,
            "h_hat": h + 0j,
            "p": p + 0j,
            "eta": eta,
            "c": (h * p).square() / eta[..., None],
            "active": self.active[:, None].expand_as(h),
            "m": (self.energy / (2.0 * self.segments.symbols))[:, None].expand_as(h),
            "noise": torch.full_like(eta, NOISE_VARIANCE),
            "weight": self.sent.grid(self.sent.weight),
        }
        if self.part is not None:
            values["sent"] = self.part.symbols
        if gram:
            rows = self.sent.grid(self.sent.x)
            parts = [rows[..., first:stop] for first, stop in self.segments.bounds]
            values["gram"] = torch.stack([torch.matmul(part, part.mT) for part in parts], 1)
        return {f"{name}/{self.sent.index}": value for name, value in values.items()}


def transmit(
    slot: Slot,
    uses: Uses,
    sent: Signal,
    scale: Tensor,
    p: Tensor,
    total: Tensor,
    counted: Callable[[Signal, Tensor], Tensor],
) -> OnPairs:
    """Put a group on air, within the energy that devices have left and up to their crash.

    Parameters
    ----------
    slot, uses, sent : of the group.
    scale : [n], of the magnitudes of its rows.
    p : [S, K] amplitude that a device would send a unit magnitude with, 0 for one that is silent.
    total : [n] sum of the scaled magnitudes.
    counted : rows, zero from their crash on, and the pairs that they have before it [n, 1] -> [n]
        sum of the magnitudes before the scale.
    """
    segments = cut(sent, uses, slot.stops, blockwise=False, quadrature=False)
    whole = sent.grid(total)
    wanted = Coefficients(p[:, None], torch.ones_like(p[:, :1]), (p > 0)[:, None])
    kept = slot.bounds.limit(wanted, slot.able(sent), whole[:, None])
    part = slot.bounds.cut_at_crash(sent, segments)
    energy = whole if part is None else sent.grid(counted(part.signal, part.stop) * scale)
    active = kept.active[:, 0]
    return OnPairs(slot, sent, segments, scale, kept.p[:, 0] * active, active, energy, part)


def before(stop: Tensor | None, columns: slice) -> Tensor | None:
    """Return which of these pairs come before rows' crashes [n, 1], [n, C] bool; None for all."""
    if stop is None:
        return None
    return torch.arange(columns.start, columns.stop, device=stop.device) < stop


def _heard(cohort: Cohort, active: Tensor, stop: Tensor | None, reals: int) -> Tensor:
    """Return which of its reals each device had on air, [S, K, P] bool; [S, K] where it is all of
    them or none."""
    if stop is None:
        return cohort.grid(active, False)
    return cohort.grid(active[:, None] & (torch.arange(reals, device=stop.device) < stop), False)
