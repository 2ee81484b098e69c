"""Send packets to all or to each, at a given rate or the channel's; lost ones are sent again.

Packets have 32 bits a number. A device that has not got its copy after the last attempt sits the
round out. A lost packet is known at once and at no cost. Models that are not the same for all
devices go to one device after the other whatever the mode.

A packet of b bits takes b / R seconds, R given, or B log2(1 + gamma g) of a bandwidth B at a
signal-to-noise ratio gamma over Rayleigh fading g ~ Exp(1), drawn anew in each attempt. A server
that does not know the channels sends at the rate that fails with probability epsilon, g = -ln(1 -
epsilon) (outage capacity); one that knows them takes what each channel carries, and in a broadcast
the weakest of those who still miss it. A copy to a device whose channel carries less than
`MIN_RATE` bits a channel use is not begun, takes no time and does not arrive. A unicast packet is
lost with probability q = 1 - (1 - loss)(1 - epsilon), so it takes (1 - q^A) / (1 - q) transmissions
in the mean, A being the most; a broadcast to n devices takes sum_{a < A} (1 - (1 - q^a)^n).

References
----------
Tse, Viswanath 2005, "Fundamentals of Wireless Communication", section 5.4.1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from otafl.core.contracts import MIN_RATE, Broadcast, Cohort
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.downlink.base import DOWNLINK, WORD, Delivery, Downlink, DownlinkSetup

LOSS, GAIN = DOWNLINK / "loss", DOWNLINK / "gain"


class DigitalDownlink(Downlink):
    """Reckon on the host, as the clock does: with a few numbers a row, and none of the model's."""

    class Settings(Downlink.Settings):
        name: Literal["digital"] = "digital"
        mode: Literal["broadcast", "unicast"] = "broadcast"
        """one packet for all who take part, sent again to all as long as one of them misses it; or
        a packet to each in turn"""
        rate: Literal["given", "outage", "channel"] = "given"
        """devices.downlink_rate_bps; or that of a channel of channel.bandwidth_hz with Rayleigh
        fading, anew in each attempt: the rate that fails with probability `outage` of a server that
        does not know the channels, or what the device's channel carries, in a broadcast the weakest
        of those who still miss it"""
        snr_db: Decibels = declare_stackable(20.0)
        """mean power of a symbol over the complex noise variance at a device, in dB, the same for
        all devices but for fading; of rates outage and channel"""
        outage: float = declare_stackable(0.1, gt=0, lt=1)
        """probability that a channel does not carry the rate outage"""
        loss: float = declare_stackable(0.0, ge=0, lt=1)
        """probability that a device loses a copy whatever its channel, independent over devices and
        attempts"""
        attempts: int = Field(1, ge=1, le=64)
        """most transmissions of a packet"""

    def __init__(self, settings: Settings, setup: DownlinkSetup) -> None:
        super().__init__(settings, setup)
        self._bandwidth_hz = setup.budget.bandwidth_hz.cpu().double().numpy()
        hyper = {name: values.cpu().double().numpy() for name, values in setup.hyper.items()}
        self._snr = db_to_linear(hyper["snr_db"])
        self._loss = hyper["loss"]
        self._gain_needed = -np.log1p(-hyper["outage"])  # P(g < this) = outage
        self._lossy = bool(self._loss.any()) or settings.rate == "outage"

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Delivery:
        own = broadcast.per_device or broadcast.coordinates_per_row is not None
        if broadcast.coordinates_per_row is not None:
            bits = WORD * broadcast.coordinates_per_row.cpu().double().numpy()
        else:
            bits = np.full(cohort.num_rows, WORD * broadcast.num_coordinates)
        lost, rate = self._draw_attempts(cohort, round)
        first = np.where(lost.all(1), lost.shape[1], lost.argmin(1))  # attempt that arrives
        if own or self.settings.mode == "unicast":
            seconds, row_seconds, sent = self._send_in_turn(cohort, bits, first, rate)
        else:
            seconds, row_seconds, sent = self._to_all(
                cohort, WORD * broadcast.num_coordinates, first, rate
            )
        delivered = None
        if self._lossy or lost.any():
            delivered = torch.from_numpy(first < lost.shape[1]).to(cohort.trial.device)
        return Delivery(broadcast, seconds, sent, delivered_mask=delivered, row_seconds=row_seconds)

    def _draw_attempts(self, cohort: Cohort, round: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw which copies a row would lose, and at what bit rate a copy would be sent to it,
        [N, A], infinite for one that is not begun."""
        trial, rule = cohort.host_trial_device[0], self.settings.rate
        lost = np.zeros((cohort.num_rows, self.settings.attempts), dtype=bool)
        if self._loss.any():
            draw = self._draw(LOSS, cohort, round)
            lost |= draw < self._loss[trial, None]
        if rule == "given":
            return lost, np.broadcast_to(self.setup.rate_bps[trial, None], lost.shape)
        gain = -np.log(self._draw(GAIN, cohort, round))
        if rule == "outage":
            lost |= gain < self._gain_needed[trial, None]
            gain = np.broadcast_to(self._gain_needed[trial, None], lost.shape)
        rate = np.log1p(self._snr[trial, None] * gain) / np.log(2.0)
        none = rate < MIN_RATE
        return lost | none, np.where(none, np.inf, self._bandwidth_hz[trial, None] * rate)

    def _draw(self, purpose: str, cohort: Cohort, round: int) -> np.ndarray:
        """Draw uniform numbers [N, A]."""
        draw = self.setup.streams.draw_device_uniform(
            purpose, round, cohort.trial, cohort.device, (self.settings.attempts,)
        )
        return draw.cpu().double().numpy()

    def _send_in_turn(
        self, cohort: Cohort, bits: np.ndarray, first: np.ndarray, rate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return seconds [S] and [N], and bits [S], of packets of bits [N] to one row after the
        other."""
        trial, counts = cohort.trial.cpu().numpy(), np.array(cohort.counts)
        used = (np.arange(rate.shape[1]) <= first[:, None]) & np.isfinite(rate)
        turn = np.arange(cohort.num_rows) - (np.cumsum(counts) - counts)[trial]
        until = np.zeros((cohort.num_trials, max(1, *counts)))
        until[trial, turn] = bits * (used / rate).sum(1)
        until = np.cumsum(until, 1)
        sent = np.bincount(trial, bits * used.sum(1), cohort.num_trials)
        return until[:, -1], until[trial, turn], sent

    def _to_all(
        self, cohort: Cohort, bits: float, first: np.ndarray, rate: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same of one packet of so many bits to all rows of a trial."""
        trial = cohort.host_trial_device[0]
        attempts = rate.shape[1]
        misses = first[:, None] >= np.arange(attempts)  # before an attempt, still to be served
        slowest = np.full((cohort.num_trials, attempts), np.inf)
        np.minimum.at(slowest, trial, np.where(misses, rate, np.inf))
        until = np.cumsum(bits / slowest, 1)  # an attempt for nobody takes no time
        last = np.minimum(first, attempts - 1)
        return until[:, -1], until[trial, last], bits * np.isfinite(slowest).sum(1)
