"""Uplinks whose server compares or adds received energies, so that no device knows a channel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
from otafl.core.problems import Problem
from otafl.core.settings import VOTES, declare_stackable
from otafl.uplink.base import Counts, Parts, Transport
from otafl.uplink.delivery import Delivery, Slot
from otafl.uplink.groups import divide_by_weights
from otafl.uplink.noncoherent import pairs
from otafl.uplink.noncoherent.energies import receive_energies
from otafl.uplink.signal import Signal, compute_squared_norm
from otafl.uplink.transmission import Transmission


class FskMajorityVote(Transport):
    """Majority vote by the frequency of the transmitted energy, without channel knowledge (FSK-MV).

    A coordinate x has two channel uses. A device transmits on the first if x >= 0 and on the second
    if x < 0, with a random phase and at full power: its energy is 2 P, because it is silent on the
    other. The server compares the energies e+ and e-, summed over A antennas, and its step is
    `step` times

        v = sign(e+ - e-).

    Under Rayleigh fading with unit gains and K+ > K- votes, the mean of e+ is m+ = 2 P K+ + sigma^2
    for each antenna, that of e- likewise. The vote is wrong with probability x = m- / (m+ + m-),
    and with A antennas I_x(A, A). Nearby devices have more influence. The scheme is the
    non-coherent counterpart of the codec `obda`. The size of the updates does not matter, except
    for absentee votes.

    A device with a small |x| can abstain (`absentee`), which helps if devices have different data.
    If the server knows that no device transmits a coordinate (no energy, or no device has it), it
    takes no step. It does not know of absentees: if all abstain, noise decides. The reported error
    is relative to the step along the error-free majority, which is zero at a tie.

    Study: `studies/published/majority_votes.yaml`.

    References
    ----------
    Sahin, Everette, Hoque 2021, "Distributed Learning over a Wireless Network with FSK-Based
        Majority Vote", arXiv 2111.01850.
    Sahin 2022, "Distributed Learning over a Wireless Network with Non-Coherent Majority Vote
        Computation", absentee votes.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    provides_sums: ClassVar[bool] = False

    class Settings(Transport.Settings):
        takes_votes: ClassVar[bool] = True

        name: Literal["fsk_majority_vote"] = "fsk_majority_vote"
        step: float = declare_stackable(0.001, gt=0)
        """size of the server's step along each vote"""
        absentee: float = declare_stackable(0.0, ge=0)
        """|x| below which a device abstains; by default it always votes"""
        absentee_of: Literal["value", "rms"] = "value"
        """unit of `absentee`: a value of x, or the root mean square of the device's update"""

        @property
        def assumes_increments(self) -> str:
            return VOTES

        def check(self, scenario: Any) -> Iterable[Problem]:
            return pairs.find_problems(scenario)

    def __init__(self, settings: Settings, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.hyper = parts.hyper
        self._absentees = bool((self.hyper["absentee"] > 0).any())

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other, and give the server its steps."""
        with torch.no_grad():
            slot = pairs.lay_out_pairs(delivery)
            for uses, sent in zip(slot.group_symbols, delivery.uplink, strict=True):
                if not sent.linear:
                    raise UserError(
                        "transport.name: 'fsk_majority_vote' gives the server a vote, but the "
                        "algorithm needs the sum of the updates; use another transport"
                    )
                least = self._compute_min_magnitude(sent)
                on_air = self._transmit(slot, uses, sent, least)
                steps, exact = self._receive(on_air, least)
                count: Tensor | Tensors = on_air.weight[:, 0]
                if sent.mask is not None:
                    reached = on_air.weigh_coordinates()
                    steps, count = steps * (reached > 0), sent.blocks(reached)
                pairs.hand_over(on_air, steps, exact, count, delivery, self.parts)

    def _compute_min_magnitude(self, sent: Signal) -> Tensor | None:
        """Return the smallest |x| with which a row votes, [n, 1]; None if all always vote."""
        if not self._absentees:
            return None
        least = self.hyper["absentee"][sent.cohort.trial]
        if self.settings.absentee_of == "rms":
            least = least * (compute_squared_norm(sent.x) / sent.num_coordinates).sqrt()
        return least[:, None]

    def _transmit(
        self, slot: Slot, uses: range, sent: Signal, least: Tensor | None
    ) -> Transmission:
        """Put the votes of a group on air."""
        eligible_mask, scale = pairs.select_able(slot, sent), torch.ones_like(sent.weight)
        energy = 2.0 * slot.budget

        def count_votes(part: Signal, stop: Tensor | None) -> Tensor:
            votes = _cast_votes(part, slice(0, part.num_coordinates), least, stop)
            return votes.expand_as(part.x).sum(1)

        p = torch.where(eligible_mask, energy.sqrt(), 0.0)
        total = count_votes(sent, None)
        on_air = pairs.transmit(slot, uses, sent, scale, p, total, count_votes)
        if least is not None and slot.round == 0:
            self._refuse_silence(on_air)
        return on_air

    def _refuse_silence(self, on_air: Transmission) -> None:
        """Raise UserError for a threshold that silences all devices of a trial from the start."""
        sent = on_air.sent
        largest = pairs.select_able(on_air.slot, sent) * sent.grid(sent.x.abs().amax(1))
        silent = (on_air.energy.sum((1, 2)) == 0) & (largest.amax(1) > 0)
        if bool(silent.any()):
            trial = int(silent.nonzero()[0])
            raise UserError(
                f"transport.absentee: {float(self.hyper['absentee'][trial]):g} (of "
                f"{self.settings.absentee_of}) silences all devices in the first round, in which "
                f"the largest |x| is {float(largest[trial].max()):.3g}; use a smaller value"
            )

    def _receive(self, on_air: Transmission, least: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the server's steps, and those along the error-free votes, [S, P] each."""
        sent = on_air.sent
        steps, exact = sent.empty_sum(), sent.empty_sum()

        def cast(rows: Signal, columns: slice, stop: Tensor | None) -> Tensor:
            return _cast_votes(rows, columns, least, stop)

        given = on_air, self.parts.streams, self.alignment.impairments, on_air.scale, cast
        for columns, energy, majority in receive_energies(*given):
            plus, minus = energy.unbind(1)
            torch.sub(plus, minus, out=steps[:, columns]).sign_()
            torch.sign(majority, out=exact[:, columns])
        step = self.hyper["step"][:, None]
        return steps.mul_(step * (on_air.weight[:, :1] > 0)), exact.mul_(step)


def _cast_votes(sent: Signal, columns: slice, least: Tensor | None, stop: Tensor | None) -> Tensor:
    """Return the votes of some columns, [n, C] 1 or 0; [1, 1] if all rows vote.

    A row does not vote where |x| is below `least` [n, 1], where it does not have the coordinate,
    and from its crash on, at `stop` [n, 1].
    """
    votes = torch.ones_like(sent.x[:1, :1]) if sent.mask is None else sent.mask[:, columns]
    if least is not None:
        votes = votes * (sent.x[:, columns].abs() >= least)
    if stop is not None:
        pair = torch.arange(columns.start, columns.stop, device=stop.device)
        votes = votes * (pair < stop)
    return votes


class Reed(Transport):
    """Sum of energies instead of amplitudes, so that no device needs to know a channel (REED).

    A coordinate x has two channel uses. A device sends the amplitude sqrt(a max(x, 0)) on the first
    and sqrt(a max(-x, 0)) on the second, with random phases. The server adds the energies e+ and e-
    over its A antennas. Over fading of mean power one, an unbiased estimate of the sum of all x is

        (e+ - e-) / (a A).

    With U+ = sum max(x, 0) and U- likewise, its variance under Rayleigh fading is

        [(a U+ + sigma^2)^2 + (a U- + sigma^2)^2] / (a^2 A).

    The scheme is limited by self-interference, which more antennas reduce and more power does not.

    All devices share the scale a = 2 P / max_k mean |x_k|, with which every device is within its
    budget P on the mean power of a channel use. The devices' mean |x_k| are side information, one
    real number each. Devices use no channel estimates, only long-term mean gains, and phase
    impairments have no effect.

    Study: `studies/published/reed.yaml`.

    References
    ----------
    Chen, Bozorgasl 2026, "Resource-Element Energy Difference for Noncoherent Over-the-Air Federated
        Learning", arXiv 2605.07263.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"

    class Settings(Transport.Settings):
        name: Literal["reed"] = "reed"
        calibrate: bool = True
        """whether a device divides its energy by its own mean channel gain, so that all have equal
        influence and the weakest channel sets the scale; if false, gains weight the devices and the
        server divides by the mean gain"""

        def check(self, scenario: Any) -> Iterable[Problem]:
            return pairs.find_problems(scenario)

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other, and give the server its estimates."""
        with torch.no_grad():
            slot = pairs.lay_out_pairs(delivery)
            for uses, sent in zip(slot.group_symbols, delivery.uplink, strict=True):
                on_air = self._transmit(delivery, slot, uses, sent)
                received = self._receive(on_air)
                pairs.hand_over(on_air, *received, delivery, self.parts, num_scalars=1)

    def _transmit(self, delivery: Delivery, slot: Slot, uses: range, sent: Signal) -> Transmission:
        """Put a group on air at the common scale.

        Its eta is the mean received energy of a unit magnitude, over fading and devices.
        """

        def sum_magnitudes(rows: Signal, _: Tensor | None) -> Tensor:
            return torch.linalg.vector_norm(rows.x, 1, dim=1)

        copies, scale = delivery.limits.num_copies, sent.scale
        if copies is not None:
            scale = scale * sent.take_rows(copies)
        divisor = slot.gain if self.settings.calibrate else torch.ones_like(slot.gain)
        total = sum_magnitudes(sent, None) * scale
        cost = sent.grid(total) / (2.0 * sent.num_coordinates) / divisor
        eligible_mask = pairs.select_able(slot, sent)
        a = find_common_scale(slot, eligible_mask, cost)
        p = torch.where(eligible_mask, (a / divisor).sqrt(), 0.0)
        on_air = pairs.transmit(slot, uses, sent, scale, p, total, sum_magnitudes)
        eta = a
        if not self.settings.calibrate:
            weight = sent.grid(sent.exact) * on_air.scalars.active_mask[:, 0]
            mean_gain = (weight * slot.gain).sum(1) / weight.sum(1).clamp_min(pairs.TINY)
            eta = a * mean_gain[:, None]
        scalars = replace(on_air.scalars, eta=eta.expand_as(on_air.scalars.eta))
        return replace(on_air, scalars=scalars)

    def _receive(self, on_air: Transmission) -> tuple[Tensor, Tensor, Tensor | Tensors]:
        """Return the estimate and the error-free aggregate, [S, P], and the delivered weight."""
        sent, weight = on_air.sent, on_air.weight[:, 0]
        estimate, exact = sent.empty_sum(), sent.empty_sum()
        given = on_air, self.parts.streams, self.alignment.impairments, sent.exact
        for columns, energy, sums in receive_energies(*given):
            torch.sub(energy[:, 0], energy[:, 1], out=estimate[:, columns])
            exact[:, columns] = sums
        unit = 1.0 / (on_air.slot.h.shape[2] * on_air.scalars.eta[:, 0].clamp_min(pairs.TINY))
        if sent.linear:
            unit = unit / sent.cohort.rows_per_trial.clamp_min(1.0)
            if sent.mask is None:
                unit = unit / weight.clamp_min(pairs.TINY)
        estimate *= torch.where(weight > 0, unit, 0.0)[:, None]
        if sent.mask is None:
            return estimate, exact, weight
        return divide_by_weights(sent, estimate, exact, on_air.weigh_coordinates())


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
