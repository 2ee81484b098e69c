"""Layout of a payload on pairs of channel uses, of which the sign of a coordinate chooses one.

A coordinate has two channel uses, + and -, in one cell of the channel. A device that sends the
magnitude v of a coordinate puts the energy p^2 v, with a random phase, on the use of its sign, and
nothing on the other. No device needs to know a channel. The mean energy of a channel use before p^2
is m_k = mean v / 2. Lengths are in pairs here: a group of P coordinates has P pairs, 2 P channel
uses.
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
from otafl.uplink.report import Saves, are_all_delivered
from otafl.uplink.segments import Segments, cut
from otafl.uplink.signal import Signal

BENT = ("timing_offset", "clip_db", "adc_bits")
"""Impairments that the model of energies on pairs does not include."""


def find_problems(scenario: Any) -> Iterator[Problem]:
    """Yield the settings of a scenario that need channel knowledge, or are not modelled."""
    name = scenario.transport.name
    for key, why in (
        ("csi", "estimates no channel"),
        ("receiver", "adds the energies of all antennas"),
    ):
        if getattr(scenario, key) != Choice(key).make_default():
            yield make_problem(
                f"'{getattr(scenario, key).name}' does not go with transport: '{name}', which uses "
                f"no phases and {why}; leave {key} out",
                key,
                "transport",
            )
    if scenario.power.name != "full" and scenario.power != Choice("power").make_default():
        yield make_problem(
            f"'{scenario.power.name}' does not go with transport: '{name}', whose devices do not "
            "know their channels; leave power out, or use power: full",
            "power",
            "transport",
        )
    yield from refuse_distortion(scenario, BENT, "energies")


TINY = 1e-100
"""Smallest cost that is divided by, far below that of any update in single precision."""


def lay_out_pairs(delivery: Delivery) -> Slot:
    """Lay out the slot of a delivery: groups in order, two channel uses per coordinate."""
    lengths = [sent.num_coordinates for sent in delivery.uplink]
    return lay_out(delivery, lengths, None, replace(delivery.limits, num_copies=None), 2)


def select_able(slot: Slot, sent: Signal) -> Tensor:
    """Select the devices that can transmit, [S, K] bool.

    They have a row in the group, energy, and a channel.
    """
    channel = slot.budget * slot.gain >= MIN_SNR
    return slot.bounds.select_able(sent.transmitter_mask) & channel


def scale_rows(sent: Signal, copies: Tensor | None) -> Tensor:
    """Return the factors of the rows before they are summed, [n].

    They are K w_k for a mean, times the copies [S, K] of an update that is sent several times.
    """
    return sent.scale if copies is None else sent.scale * sent.take_rows(copies)


def find_common_scale(slot: Slot, eligible_mask: Tensor, cost: Tensor) -> Tensor:
    """Find the largest common scale of all energies within the budget of each device.

    Parameters
    ----------
    slot : Slot
        Power budgets P_k.
    eligible_mask : Tensor, bool [S, K]
        Transmitters.
    cost : Tensor, float [S, K]
        Mean energy of a channel use at scale one, u_k.

    Returns
    -------
    Tensor, float64 [S, 1]
        min_k P_k / u_k; 1 if no device transmits.
    """
    most = (eligible_mask * cost.double() / slot.budget).amax(1, keepdim=True)
    return torch.where(most > 0, 1.0 / most, 1.0)


@dataclass(frozen=True)
class OnPairs:
    """Transmission of a group on pairs of channel uses.

    Parameters
    ----------
    slot : Slot
        Channels, budgets and limits.
    sent : Signal
        Rows of the group, [n, P].
    segments : Segments
        Segments of the group.
    scale : Tensor, float [n]
        Factor of the rows' magnitudes.
    p : Tensor, float [S, K]
        Amplitude of a unit magnitude, within the energy that a device has left.
    active : Tensor, bool [S, K]
        Devices on air.
    energy : Tensor, float [S, K]
        Sum of the scaled magnitudes that a device sends, up to its crash.
    part : SentPart or None
        Part of the rows that crashing devices send; None if none crash.
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
        """Rows, zero from the crash of a device on."""
        return self.sent if self.part is None else self.part.signal

    @property
    def row_amplitude(self) -> Tensor:
        """Factor of the roots of a row's magnitudes, [n]."""
        return self.sent.take_rows(self.p) * self.scale.sqrt()

    @property
    def stop(self) -> Tensor | None:
        """Pairs of a row before its crash, [n, 1]; None if none crash."""
        return None if self.part is None else self.part.stop

    @property
    def antennas(self) -> int:
        """Number of antennas, A."""
        return self.slot.h.shape[2]

    @functools.cached_property
    def active_rows(self) -> Tensor:
        """Indicator of the rows on air, 1 or 0: [n]."""
        return self.sent.take_rows(self.active).to(self.sent.x.dtype)

    @functools.cached_property
    def weight(self) -> Tensor:
        """Total weight on air, [S]."""
        return self.sent.sum_by_trial(self.sent.weight * self.active_rows)

    def weigh_known(self) -> Tensor:
        """Return the weight on air that has each coordinate, [S, P], of a group with a mask."""
        rows = (self.sent.weight * self.active_rows)[:, None]
        return self.sent.sum(rows, self.sent.mask)[:, 0]

    @property
    def delivered_mask(self) -> Callable[[], Tensor]:
        """Function that returns the delivered coordinates, as in `LinkReport.delivered_mask_fns`.

        It keeps no tensor of the payload's size.
        """
        sent, active = self.sent, self.active_rows > 0
        return functools.partial(_mark, sent.cohort, active, self.stop, sent.num_coordinates)

    def account(self, delivery: Delivery, eta: Tensor, saves: Saves) -> None:
        """Add channel uses and energy to the tally, and note the devices on air.

        Parameters
        ----------
        delivery : Delivery
            Gives the tally.
        eta : Tensor, float [S]
            Divisor of the received energies.
        saves : Saves
            Variables to save.
        """
        active, senders = self.active, self.sent.cohort.rows_per_trial
        pairs = torch.full_like(self.p, float(self.segments.symbols)) * active
        if self.part is not None:
            pairs = self.part.symbols.sum(1) * active
        spent = self.p.square() * self.energy
        symbols = (senders > 0) * (2.0 * self.segments.symbols)
        delivery.tally.add(symbols=symbols, energy=spent, sent=2.0 * pairs)
        delivery.tally.note(on_air=active)
        delivery.note_delivered(self.sent, None if are_all_delivered(active) else self.weight)
        if saves.link:
            delivery.tally.saved |= self._collect_coefficients(eta, saves.gram)
        self.slot.bounds.spend(spent)

    def _collect_coefficients(self, eta: Tensor, gram: bool) -> Tensors:
        """Return the coefficients, with the names and shapes of `over_the_air`.

        The channel h is the root mean square over the antennas, c = |h p|^2 / eta the gain of a
        device's magnitudes, and m their mean in a channel use.
        """
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
    slot, uses, sent : Slot, Uses and Signal
        Slot, channel uses and rows of the group.
    scale : Tensor, float [n]
        Factor of the rows' magnitudes.
    p : Tensor, float [S, K]
        Amplitude of a unit magnitude without a bound on the energy, 0 for a silent device.
    total : Tensor, float [n]
        Sum of the scaled magnitudes.
    counted : callable
        Maps rows, which are zero from their crash on, and their pairs before it, [n, 1], to the sum
        of the magnitudes before the scale, [n].

    Returns
    -------
    OnPairs
        The transmission.
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
    """Return the pairs before rows' crashes, given as `stop` [n, 1]: [n, C] bool; None for all."""
    if stop is None:
        return None
    return torch.arange(columns.start, columns.stop, device=stop.device) < stop


def _mark(cohort: Cohort, active: Tensor, stop: Tensor | None, num_coordinates: int) -> Tensor:
    """Mark the coordinates that each device has on air, [S, K, P] bool.

    The result is [S, K] if a device has all of its coordinates on air, or none.
    """
    if stop is None:
        return cohort.scatter_to_grid(active, False)
    return cohort.scatter_to_grid(
        active[:, None] & (torch.arange(num_coordinates, device=stop.device) < stop), False
    )
