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
from otafl.core.contracts import MIN_SNR, NOISE_VARIANCE, Coefficients, Cohort, Tensors
from otafl.core.problems import Problem, make_problem
from otafl.uplink.bounds import SentPart
from otafl.uplink.delivery import Delivery
from otafl.uplink.impairments.impairments import refuse_distortion
from otafl.uplink.interleaving import Uses
from otafl.uplink.layout import Slot, lay_out
from otafl.uplink.report import Saves
from otafl.uplink.segments import Segments, cut
from otafl.uplink.signal import Signal

BENT = ("timing_offset", "clip_db", "adc_bits")
"""Impairments that energies on pairs are not computed with."""


def find_problems(scenario: Any) -> Iterator[Problem]:
    """Yield what a scenario asks for that takes channel knowledge, or that is not computed."""
    name = scenario.transport.name
    for key, why in (
        ("csi", "no channel is estimated"),
        ("receiver", "the energies of all antennas are added"),
    ):
        if getattr(scenario, key) != Choice(key).make_default():
            yield make_problem(
                f"'{getattr(scenario, key).name}' does not go with transport: '{name}', which uses "
                f"no phases: {why}; leave {key} out",
                key,
                "transport",
            )
    if scenario.power.name != "full" and scenario.power != Choice("power").make_default():
        yield make_problem(
            f"'{scenario.power.name}' does not go with transport: '{name}', whose devices know no "
            "channel to set their power by; leave power out, or power: full",
            "power",
            "transport",
        )
    yield from refuse_distortion(scenario, BENT, "energies")


TINY = 1e-30
"""Least cost that a scale answers to; its inverse is finite in single precision."""


def lay_out_pairs(delivery: Delivery) -> Slot:
    """Lay out the slot of a delivery: the groups one after the other, two channel uses a real."""
    lengths = [sent.num_coordinates for sent in delivery.uplink]
    return lay_out(delivery, lengths, None, replace(delivery.limits, num_copies=None), 2)


def select_able(slot: Slot, sent: Signal) -> Tensor:
    """Select the devices that can send, [S, K] bool: they have something to send, energy, and a
    channel."""
    channel = slot.budget * slot.gain >= MIN_SNR
    return slot.bounds.select_able(sent.transmitter_mask) & channel


def scale_rows(sent: Signal, copies: Tensor | None) -> Tensor:
    """Return what rows are multiplied with to be added up, [n]: K w_k for a mean, and the times
    [S, K] that a device sends them."""
    return sent.scale if copies is None else sent.scale * sent.take_rows(copies)


def find_common_scale(slot: Slot, eligible_mask: Tensor, cost: Tensor) -> Tensor:
    """Find the largest scale [S, 1] of all energies that is within the budget of each device.

    Parameters
    ----------
    slot : with the budgets.
    able : [S, K] bool, the transmitters.
    cost : [S, K], mean energy of a channel use at scale one.
    """
    most = (eligible_mask * cost / slot.budget.clamp_min(TINY)).amax(1, keepdim=True)
    return torch.where(most > 0, 1.0 / most.clamp_min(TINY), 1.0)


@dataclass(frozen=True)
class OnPairs:
    """What is transmitted of a group.

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
        return self.sent.take_rows(self.p) * self.scale.sqrt()

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
        return self.sent.take_rows(self.active).to(self.sent.x.dtype)

    @functools.cached_property
    def weight(self) -> Tensor:
        """Return the weight on air, [S]."""
        return self.sent.sum_by_trial(self.sent.weight * self.active_rows)

    def weigh_known(self) -> Tensor:
        """Return the weight on air that knows each real, [S, P], of a group with a mask."""
        rows = (self.sent.weight * self.active_rows)[:, None]
        return self.sent.sum(rows, self.sent.mask)[:, 0]

    @property
    def delivered_mask(self) -> Callable[[], Tensor]:
        """Return a function as in `LinkReport.delivered_mask_fns`; it keeps no payload."""
        sent, active = self.sent, self.active_rows > 0
        return functools.partial(_mark, sent.cohort, active, self.stop, sent.num_coordinates)

    def account(self, delivery: Delivery, eta: Tensor, saves: Saves) -> None:
        """Add up channel uses and energy, and note who was on air; eta: [S] what received energies
        are divided by."""
        active, senders = self.active, self.sent.cohort.rows_per_trial
        pairs = torch.full_like(self.p, float(self.segments.symbols)) * active
        if self.part is not None:
            pairs = self.part.symbols.sum(1) * active
        spent = self.p.square() * self.energy
        symbols = (senders > 0) * (2.0 * self.segments.symbols)
        delivery.tally.add(symbols=symbols, energy=spent, sent=2.0 * pairs)
        delivery.tally.note(on_air=active)
        delivery.note_delivered(self.sent, None if bool(active.any(1).all()) else self.weight)
        if saves.link:
            delivery.tally.saved |= self._collect_coefficients(eta, saves.gram)
        self.slot.bounds.spend(spent)

    def _collect_coefficients(self, eta: Tensor, gram: bool) -> Tensors:
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
    segments = cut(sent, uses, slot.cell_stops, blockwise=False, quadrature=False)
    whole = sent.grid(total)
    wanted = Coefficients(p[:, None], torch.ones_like(p[:, :1]), (p > 0)[:, None])
    kept = slot.bounds.limit(wanted, select_able(slot, sent), whole[:, None])
    part = slot.bounds.cut_at_crash(sent, segments)
    energy = whole if part is None else sent.grid(counted(part.signal, part.stop) * scale)
    active = kept.active_mask[:, 0]
    return OnPairs(slot, sent, segments, scale, kept.p[:, 0] * active, active, energy, part)


def mask_before_crash(stop: Tensor | None, columns: slice) -> Tensor | None:
    """Return which of these pairs come before rows' crashes [n, 1], [n, C] bool; None for all."""
    if stop is None:
        return None
    return torch.arange(columns.start, columns.stop, device=stop.device) < stop


def _mark(cohort: Cohort, active: Tensor, stop: Tensor | None, reals: int) -> Tensor:
    """Mark the coordinates that each device had on air, [S, K, P] bool; [S, K] where it is all of
    them or none."""
    if stop is None:
        return cohort.scatter_to_grid(active, False)
    return cohort.scatter_to_grid(
        active[:, None] & (torch.arange(reals, device=stop.device) < stop), False
    )
