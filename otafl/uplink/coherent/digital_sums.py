r"""Integers of all devices that add up on the channel, of which the server rounds the sum.

A coordinate is rounded to one of q levels, an integer a_k of 0 .. q - 1. Its digits modulate the
channel uses of the coordinate, and the channel adds the symbols of all K devices. The server
subtracts nothing but rounds: the sum of a digit is an integer of 0 .. K (q_d - 1), so noise below
half a spacing is removed. The sum of the a_k follows from the sums of their digits, and from it the
mean of the devices' values. All devices must arrive with effective gain one, as by channel
inversion. The server must know how many of them are on air, one real number of side information of
each device.

With s the standard deviation of a received digit's noise in spacings, rounding leaves the mean
squared error

.. math::

    V(s) = \sum_{n \ge 1} (2 n - 1) \, 2 Q\!\left( \frac{n - 1/2}{s} \right),

for any number of devices, and digits of weight w_d leave sum_d w_d^2 V(s_d) in the sum of integers.
Sums near the ends 0 and K (q_d - 1) are clipped there, which lowers the error and gives it a bias.

A weighted mean rounds K w_k x_k. The channel uses of a coordinate have the fade of the first.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.uplink import noise
from otafl.uplink.base import Counts, Parts, Transport
from otafl.uplink.delivery import Delivery, lay_out
from otafl.uplink.levels import Levels, LevelSettings
from otafl.uplink.signal import cut, split_columns
from otafl.uplink.transmission import Transmission, account, receive, transmit

CHUNK = 1 << 14
"""Coordinates of a payload that are processed at a time, so that few copies of it are made."""


@dataclass(frozen=True)
class Digits:
    """Digits of an integer, and the points that carry them.

    Parameters
    ----------
    radices : tuple of int
        Number q_d of values of each digit, the least significant first.
    spacings : tuple of float
        Distance of the points of each digit, relative to each other.
    quadrature : bool
        Whether a channel use carries two digits, one on each quadrature carrier.
    """

    radices: tuple[int, ...]
    spacings: tuple[float, ...]
    quadrature: bool

    @property
    def num_levels(self) -> int:
        """Number of integers, q."""
        return math.prod(self.radices)

    @property
    def num_uses(self) -> int:
        """Channel uses of an integer."""
        return -(-len(self.radices) // 2) if self.quadrature else len(self.radices)

    @property
    def weights(self) -> tuple[int, ...]:
        """Weight w_d of each digit in the integer."""
        return tuple(math.prod(self.radices[:d]) for d in range(len(self.radices)))

    def modulate(self, integers: Tensor, d: int, like: Tensor) -> Tensor:
        """Return the points of digit d of integers [n, C], whose mean over all values is zero."""
        digit = (integers // self.weights[d]) % self.radices[d]
        return (digit.to(like.dtype) - 0.5 * (self.radices[d] - 1)) * self.spacings[d]

    def round_sum(self, received: Tensor, d: int, senders: Tensor) -> Tensor:
        """Return the sum of digit d over the senders [S, C], given the sum of its points."""
        most = senders * (self.radices[d] - 1)
        total = received / self.spacings[d] + 0.5 * most
        return total.round().clamp_min(0.0).minimum(most)


class DigitalSum(Transport):
    """Digital sum; `digits` says how the symbols carry the integers."""

    supports_snr_growth: ClassVar[bool] = True
    state_attrs: ClassVar[tuple[str, ...]] = ("_policy_state",)
    provides: ClassVar[frozenset[str]] = frozenset({"mean"})
    counts: ClassVar[Counts] = "shared"
    obeys_power: ClassVar[bool] = True

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        self._policy_state = self.alignment.prepare()

    @property
    @abstractmethod
    def digits(self) -> Digits:
        """The digits of a coordinate's integer."""

    def transmit(self, delivery: Delivery) -> None:
        """Send the groups one after the other.

        Rows x_k [n, P] become integers, and the estimate [S, P] follows from their rounded sum.
        """
        with torch.no_grad():
            digits, link = self.digits, self.alignment
            lengths = [rows.num_coordinates for rows in delivery.uplink]
            slot = lay_out(delivery, lengths, link.csi, delivery.limits, digits.num_uses)
            for uses, rows in zip(slot.group_symbols, delivery.uplink, strict=True):
                levels = Levels(
                    rows,
                    rows.scale,
                    digits.num_levels,
                    self.settings,
                    self.parts.streams,
                    slot.round,
                )
                integers, size = self._choose_points(levels)
                sent = replace(rows, x=size)  # for the power of a coordinate on its channel uses
                segments = cut(uses, slot.cell_stops)
                self._policy_state, on_air = transmit(
                    slot, sent, segments, link, self._policy_state, is_scaled=True
                )
                receive(on_air, *self._receive(on_air, levels, integers), delivery)
                # mean symbol power, and whether the device is on air
                account(on_air, delivery, levels.num_side_scalars + 2)
                if self.parts.save_link:
                    delivery.saved |= levels.collect(on_air, self.parts.save_gram)

    def _choose_points(self, levels: Levels) -> tuple[Tensor, Tensor]:
        """Choose the integers of the rows, int32 [n, P], and the magnitude of their points."""
        digits, rows = self.digits, levels.sent
        integers, size = torch.empty_like(rows.x, dtype=torch.int32), torch.zeros_like(rows.x)
        for columns in split_columns(rows.num_coordinates, CHUNK):
            integers[:, columns] = part = levels.round(columns)
            for d in range(len(digits.radices)):
                size[:, columns] += digits.modulate(part, d, rows.x).square()
        size.sqrt_()
        return integers, size if rows.mask is None else size * rows.mask

    def _receive(
        self, on_air: Transmission, levels: Levels, integers: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Receive the sums of the digits; return the estimate and the error-free sum, [S, P]."""
        digits, signal, rows = self.digits, on_air.signal, levels.sent
        halves, num_coordinates = 2 if digits.quadrature else 1, rows.num_coordinates
        gain = signal.take_rows(on_air.gain.mT).to(signal.x.dtype.to_complex())
        segment = on_air.segments.index_segments(gain.device)
        spread = on_air.expand(on_air.sum_noise_std)
        if rows.mask is None:
            senders = on_air.expand(signal.sum_by_trial(on_air.active_rows))
        else:
            senders = signal.sum_by_trial(on_air.expand(on_air.active_rows) * rows.mask)
        total = torch.zeros_like(levels.ends)
        for first in range(0, len(digits.radices), halves):
            pair = range(first, min(first + halves, len(digits.radices)))
            drawn = [
                noise.draw_count_noise(
                    self.parts.streams, rows.index, on_air.slot.round, d, (1, num_coordinates)
                )[:, 0]
                for d in pair
            ]
            for columns in split_columns(num_coordinates, CHUNK):
                on = gain[:, segment[columns]] * (signal.x[:, columns] != 0)
                points = [digits.modulate(integers[:, columns], d, signal.x) for d in pair]
                symbols = torch.complex(*points) if len(pair) == 2 else points[0]
                y = torch.view_as_real(signal.sum_by_trial(on * symbols))
                for d, received, each in zip(pair, y.unbind(-1), drawn, strict=False):
                    received = received + each[:, columns] * spread[:, columns]
                    found = digits.round_sum(received, d, senders[:, columns])
                    total[:, columns] += digits.weights[d] * found
        total = levels.ends * (2.0 * total / (digits.num_levels - 1) - senders)
        return total * on_air.expand(on_air.sum_unit), rows.sum(rows.exact[:, None])[:, 0]


Radix = Annotated[int, Field(ge=2, le=256)]


class SumComp(DigitalSum):
    """Points of a lattice that add up: the two digits of an integer on the two quadratures.

    With q = q_1 q_2 levels a device sends (a mod q_1) + j floor(a / q_1), less the mean point. One
    complex channel use carries a coordinate. With unit signal power, noise of variance N_0 and
    uniform integers, s = sqrt(P N_0 / 2) for P = (q_1^2 + q_2^2 - 2) / 12, and the squared error of
    the sum of integers is (1 + q_1^2) V(s).

    References
    ----------
    Razavikia, Barros da Silva, Fischione 2023, "SumComp: Coding for Digital Over-the-Air
        Computation via the Ring of Integers", arXiv 2310.20504.
    """

    class Settings(LevelSettings):
        name: Literal["sumcomp"] = "sumcomp"
        radices: tuple[Radix, Radix] = (4, 4)
        """q_1 and q_2, points of the in-phase and the quadrature component; a coordinate has q_1
        q_2 levels"""

        receives: ClassVar[str] = "sums of integers"

    @property
    def digits(self) -> Digits:
        return Digits(self.settings.radices, (1.0, 1.0), quadrature=True)


class BitSlices(DigitalSum):
    """Bits of the coordinates, of which each slice is summed over the devices and rounded.

    A bit is +1 or -1 on a channel use of its own, or one of two on a complex channel use. The
    server counts the devices whose bit is set. With unit power of a real channel use and noise of
    variance N_0, s = sqrt(N_0 / 2) / 2, and the squared error of the sum of integers is (4^B - 1)
    / 3 V(s). More power for high bits, `bit_power` g, protects the bits that matter most.

    References
    ----------
    Liu, Gong, Huang 2024, "Digital Over-the-Air Computation: Achieving High Reliability via
        Bit-Slicing", arXiv 2404.07121.
    """

    class Settings(LevelSettings):
        name: Literal["bit_slices"] = "bit_slices"
        bits: int = Field(4, ge=1, le=16)
        """B, bits of a coordinate, which has 2^B levels"""
        quadrature: bool = False
        """two bits per channel use, one on each quadrature carrier, instead of one"""
        bit_power: float = Field(1.0, ge=1, le=4)
        """g, power of a bit relative to that of the next lower bit; the mean power is the same"""

        receives: ClassVar[str] = "sums of bits"

        def find_conflicts(self) -> Iterator[str]:
            if self.quadrature and self.bits == 1:
                yield "quadrature: true needs two bits for a channel use, got bits: 1"

    @property
    def digits(self) -> Digits:
        spacings = tuple(self.settings.bit_power ** (0.5 * b) for b in range(self.settings.bits))
        return Digits((2,) * self.settings.bits, spacings, self.settings.quadrature)
