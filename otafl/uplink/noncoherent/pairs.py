"""Layout of a payload on pairs of channel uses, of which the sign of a coordinate chooses one.

A coordinate has two channel uses, + and -, in one cell of the channel. A device that sends the
magnitude v of a coordinate puts the energy p^2 v, with a random phase, on the use of its sign, and
nothing on the other. No device needs to know a channel. The mean energy of a channel use before p^2
is m_k = mean v / 2. Lengths are in pairs here: a group of P coordinates has P pairs, 2 P channel
uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from otafl.core.choices import Choice
from otafl.core.contracts import MIN_SNR, NOISE_VARIANCE, Coefficients, Tensors
from otafl.core.problems import Problem, make_problem
from otafl.uplink.base import Parts
from otafl.uplink.delivery import Delivery, Slot, lay_out
from otafl.uplink.impairments.impairments import refuse_distortion
from otafl.uplink.report import collect_coefficients
from otafl.uplink.signal import Signal, cut
from otafl.uplink.transmission import Transmission, account

BENT = ("timing_offset", "clip_db", "adc_bits")
"""Impairments that the model of energies on pairs does not include."""

TINY = 1e-100
"""Smallest cost that is divided by, far below that of any update in single precision."""


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


def lay_out_pairs(delivery: Delivery) -> Slot:
    """Lay out the slot of a delivery: groups in order, two channel uses per coordinate."""
    lengths = [sent.num_coordinates for sent in delivery.uplink]
    return lay_out(delivery, lengths, None, replace(delivery.limits, num_copies=None), 2)


def select_able(slot: Slot, sent: Signal) -> Tensor:
    """Select the devices that can transmit, [S, K] bool.

    They have a row in the group, energy, and a channel.
    """
    sends = sent.transmitter_mask & (slot.budget * slot.gain >= MIN_SNR)
    return sends if slot.bounds is None else slot.bounds.select_able(sends)


def transmit(
    slot: Slot,
    uses: range,
    sent: Signal,
    scale: Tensor,
    p: Tensor,
    total: Tensor,
    sum_sent: Callable[[Signal, Tensor], Tensor],
) -> Transmission:
    """Put a group on air, within the energy that devices have left and up to their crash.

    Parameters
    ----------
    slot, uses, sent : Slot, range and Signal
        Slot, channel uses and rows of the group.
    scale : Tensor, float [n]
        Factor of the rows' magnitudes.
    p : Tensor, float [S, K]
        Amplitude of a unit magnitude without a bound on the energy, 0 for a silent device.
    total : Tensor, float [n]
        Sum of the scaled magnitudes.
    sum_sent : callable
        Maps rows, which are zero from their crash on, and their pairs before it, [n, 1], to the sum
        of the magnitudes before the scale, [n].

    Returns
    -------
    Transmission
        The transmission. Its energies are sums of scaled magnitudes, all segments have the same
        scalars, and h is the root mean square over the antennas.
    """
    segments = cut(uses, slot.cell_stops)
    energy, signal, stop = sent.grid(total), sent, None
    scalars = Coefficients(p[:, None] + 0j, torch.ones_like(p[:, :1]), p[:, None] > 0)
    if slot.bounds is not None:
        scalars = slot.bounds.limit(scalars, select_able(slot, sent), energy[:, None])
        signal, stop = slot.bounds.cut_at_crash(sent, segments)
        if stop is not None:
            energy = sent.grid(sum_sent(signal, stop) * scale)
    h = slot.h[..., list(segments.cells)].abs().square().mean(2).sqrt().mT + 0j
    per_use = energy / (slot.uses_per_symbol * segments.symbols)
    mean = per_use[:, None].expand(h.shape)
    active = scalars.active_mask
    return Transmission(
        slot=slot,
        sent=sent,
        signal=signal,
        segments=segments,
        scale=scale,
        means=None,
        energy=slot.uses_per_symbol * segments.get_lengths(energy)[:, None] * mean,
        power=mean,
        h=h,
        h_hat=h,
        noise=torch.full_like(p[:, :1], NOISE_VARIANCE).expand(h.shape[:2]),
        combiner=h[..., :0],
        scalars=Coefficients(
            p=(scalars.p * active).expand(h.shape),
            eta=scalars.eta.expand(h.shape[:2]),
            active_mask=active.expand(h.shape),
        ),
        stop=stop,
    )


def hand_over(
    on_air: Transmission,
    estimate: Tensor,
    exact: Tensor,
    count: Tensor | Tensors,
    delivery: Delivery,
    parts: Parts,
    num_scalars: int = 0,
) -> None:
    """Pass the server its estimate of a group, and add error and cost.

    Parameters
    ----------
    on_air : Transmission
        Transmission of the group.
    estimate, exact : Tensor, float [S, P]
        Estimate, and error-free aggregate.
    count : Tensor [S], or Tensors [S, *shape]
        Delivered weight, of the group or of each coordinate.
    delivery : Delivery
        Gets the estimate.
    parts : Parts
        Say which variables to save. Their c = |h p|^2 / eta is the gain of a device's magnitudes.
    num_scalars : int
        Real numbers of side information from each device.
    """
    sent = on_air.sent
    delivered_fn = on_air.get_delivered_fn(on_air.active_rows[:, :1] > 0)
    delivery.give_estimate(sent, estimate, exact, count, delivered_fn=delivered_fn)
    account(on_air, delivery, num_scalars)
    if parts.save_link:
        c = {f"c/{sent.index}": on_air.gain.abs().square()}
        delivery.saved |= collect_coefficients(on_air, parts.save_gram) | c
