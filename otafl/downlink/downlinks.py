"""Downlinks: error-free, in packets that can be lost, random subsets, and uncoded."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.codecs.sparse import count_kept, count_subset_bits, draw_random_subset
from otafl.core.contracts import MIN_RATE, Broadcast, Cohort, Tensors, unsqueeze_like
from otafl.core.errors import UserError
from otafl.core.rng import declare_purpose
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.downlink.base import (
    DOWNLINK,
    WORD,
    BroadcastDelivery,
    Distort,
    Downlink,
    DownlinkSetup,
    count_copies,
)


class IdealDownlink(Downlink):
    """Delivery of the broadcast without error.

    A number has 32 bits. Bits and time are charged at `devices.downlink_rate_bps`.
    """

    class Settings(Downlink.Settings):
        name: Literal["ideal"] = "ideal"

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> BroadcastDelivery:
        """Send the broadcast at the given rate."""
        if broadcast.coordinates_per_row is None:
            bits = WORD * broadcast.num_sent
            return BroadcastDelivery(
                broadcast, bits / self.setup.rate_bps, count_copies(broadcast, cohort) * bits
            )
        # devices get different parts at the same time; the largest takes longest
        bits_of, trial = (
            WORD * broadcast.coordinates_per_row.cpu().numpy(),
            cohort.host_trial_device[0],
        )
        longest = np.zeros(cohort.num_trials)
        np.maximum.at(longest, trial, bits_of)
        total = np.bincount(trial, bits_of, cohort.num_trials)
        return BroadcastDelivery(broadcast, longest / self.setup.rate_bps, total)


LOSS, GAIN = DOWNLINK / "loss", DOWNLINK / "gain"


class DigitalDownlink(Downlink):
    """Packets to all devices or to each, at a given rate or the channel's, with retransmissions.

    Packets have 32 bits per number. A device without its copy after the last attempt does not take
    part in the round. A lost packet is detected at once and without cost. Models that differ
    between devices are sent to one device after the other in both modes.

    A packet of b bits takes b / R seconds at a given rate R, or b / (B log2(1 + gamma g)) seconds
    in a bandwidth B at a signal-to-noise ratio gamma over Rayleigh fading g ~ Exp(1), new in each
    attempt. A server that does not know the channels sends at the rate that fails with probability
    epsilon, g = -ln(1 - epsilon) (outage capacity). A server that knows them uses what each channel
    carries, and in a broadcast the weakest channel of the devices that still miss the packet. A
    copy to a device whose channel carries less than `MIN_RATE` bits per channel use is not started,
    takes no time and is lost. A unicast packet is lost with probability q = 1 - (1 - loss)(1 -
    epsilon). With at most A attempts, it takes (1 - q^A) / (1 - q) transmissions on average, and a
    broadcast to n devices sum_{a < A} (1 - (1 - q^a)^n).

    Packets with retransmissions.

    The computation is on the host, because it only needs a few numbers per row and no parameters.

    References
    ----------
    Tse, Viswanath 2005, "Fundamentals of Wireless Communication", section 5.4.1.
    """

    class Settings(Downlink.Settings):
        name: Literal["digital"] = "digital"
        mode: Literal["broadcast", "unicast"] = "broadcast"
        """broadcast: one packet for all participants, repeated while one of them misses it;
        unicast: one packet for each, in turn"""
        rate: Literal["given", "outage", "channel"] = "given"
        """bit rate: given, devices.downlink_rate_bps; or that of a channel with Rayleigh fading in
        channel.bandwidth_hz, new in each attempt: outage, the rate that fails with probability
        `outage` if the server does not know the channels; channel, what the device's channel
        carries, and in a broadcast the weakest channel of the devices that still miss the packet"""
        snr_db: Decibels = declare_stackable(20.0)
        """mean power of a symbol over the complex noise variance at a device in dB, equal for all
        devices except for fading, for the rates outage and channel"""
        outage: float = declare_stackable(0.1, gt=0, lt=1)
        """probability that a channel does not carry the rate outage"""
        loss: float = declare_stackable(0.0, ge=0, lt=1)
        """probability that a device loses a copy regardless of its channel, independent over
        devices and attempts"""
        attempts: int = Field(1, ge=1, le=64)
        """largest number of transmissions of a packet"""

    def __init__(self, settings: Settings, setup: DownlinkSetup) -> None:
        super().__init__(settings, setup)
        self._bandwidth_hz = setup.budget.bandwidth_hz.cpu().double().numpy()
        hyper = {name: values.cpu().double().numpy() for name, values in setup.hyper.items()}
        self._snr = db_to_linear(hyper["snr_db"])
        self._loss = hyper["loss"]
        self._gain_needed = -np.log1p(-hyper["outage"])  # P(g < this) = outage
        self._lossy = bool(self._loss.any()) or settings.rate == "outage"

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> BroadcastDelivery:
        """Send packets until all rows have them, or the attempts are used up."""
        own = broadcast.per_device or broadcast.coordinates_per_row is not None
        if broadcast.coordinates_per_row is not None:
            bits = WORD * broadcast.coordinates_per_row.cpu().double().numpy()
        else:
            bits = np.full(cohort.num_rows, WORD * broadcast.num_sent)
        lost, rate = self._draw_attempts(cohort, round)
        first = np.where(lost.all(1), lost.shape[1], lost.argmin(1))  # attempt that arrives
        trial, attempts = cohort.host_trial_device[0], rate.shape[1]
        if own or self.settings.mode == "unicast":  # packets to one row after the other
            counts = np.array(cohort.counts)
            used = (np.arange(attempts) <= first[:, None]) & np.isfinite(rate)
            turn = np.arange(cohort.num_rows) - (np.cumsum(counts) - counts)[trial]
            until = np.zeros((cohort.num_trials, max(1, *counts)))
            until[trial, turn] = bits * (used / rate).sum(1)
            until = np.cumsum(until, 1)
            row_seconds = until[trial, turn]
            sent = np.bincount(trial, bits * used.sum(1), cohort.num_trials)
        else:  # one packet to all rows of a trial
            misses = first[:, None] >= np.arange(attempts)  # rows that miss it before an attempt
            slowest = np.full((cohort.num_trials, attempts), np.inf)
            np.minimum.at(slowest, trial, np.where(misses, rate, np.inf))
            until = np.cumsum(WORD * broadcast.num_sent / slowest, 1)  # no time for no device
            row_seconds = until[trial, np.minimum(first, attempts - 1)]
            sent = WORD * broadcast.num_sent * np.isfinite(slowest).sum(1)
        delivered = None
        if self._lossy or lost.any():
            delivered = torch.from_numpy(first < lost.shape[1]).to(cohort.trial.device)
        return BroadcastDelivery(
            broadcast, until[:, -1], sent, delivered_mask=delivered, row_seconds=row_seconds
        )

    def _draw_attempts(self, cohort: Cohort, round: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw which copies a row would lose, and their bit rates, [N, A] each.

        The rate is infinite for a copy that is not started.
        """
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


CHOICE = DOWNLINK / "random_subset"


class RandomSubsetDownlink(Downlink):
    """Random subset of the parameters for each device, drawn for each device and round.

    The numbers arrive without error, at one device after the other. A device takes parameters that
    are not sent for 0, because it has no earlier model. This is the downlink of TDPFed's reference
    "FedAvg (s.a.r.)"; codec random_subset is its uplink.

    References
    ----------
    Wang, Jin, Liu, Zong, Shao, Li 2022, "Tensor Decomposition based Personalized Federated
        Learning", section VII-C.
    """

    class Settings(Downlink.Settings):
        name: Literal["random_subset"] = "random_subset"
        keep: float = Field(0.5, gt=0, le=1)
        """fraction of the numbers that a device receives"""

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> BroadcastDelivery:
        """Send a subset to one device after the other."""
        if broadcast.coordinates_per_row is not None:
            raise UserError(
                "downlink: 'random_subset' sends a part of one model to all devices, and the "
                "algorithm sends each device a model of its own size; use ideal or analog"
            )
        num_coordinates = broadcast.num_coordinates
        count = count_kept(self.settings.keep, num_coordinates)
        side = WORD * broadcast.side_coordinates
        bits = side + count_subset_bits(num_coordinates, count)
        sent = np.array(cohort.counts, dtype=float) * bits

        def thin(blocks: Tensors, cohort: Cohort, place: Tensor) -> None:
            """Set all but `count` random numbers of each row to 0."""
            pair = cohort.trial, cohort.device
            draw = self.setup.streams.draw_device_uniform(CHOICE, round, *pair, (num_coordinates,))
            sizes = [block[0].numel() for block in blocks.values()]
            parts = draw_random_subset(draw, count).split(sizes, 1)
            for block, some in zip(blocks.values(), parts, strict=True):
                block.mul_(some.view_as(block))

        return BroadcastDelivery(broadcast, sent / self.setup.rate_bps, sent, thin)


FADING = declare_purpose("downlink_fading", __name__)


class AnalogDownlink(Downlink):
    """Uncoded broadcast of the parameters, with independent noise at each device.

    The server sends the model's real numbers x, one per symbol in `channel.bandwidth_hz`, scaled to
    a mean power P by their mean square m, which is sent too. Device k knows its channel h_k and
    receives

        |h_k| sqrt(P / m) x + n,   n ~ N(0, sigma^2 / 2),

    with noise as in the uplink, and gamma = P / sigma^2. It divides by the channel, which gives x +
    e with e of variance m / (2 gamma |h_k|^2). Or it uses the linear MMSE estimate, s (x + e) with
    s = 2 gamma |h_k|^2 / (1 + 2 gamma |h_k|^2). Its squared error m (1 - s) is bounded in a deep
    fade. A broadcast that differs between devices is sent to one device after the other. Integers
    in it, and the mean square, are sent digitally.

    References
    ----------
    Amiri, Gunduz, Kulkarni, Poor 2022, "Convergence of Federated Learning Over a Noisy Downlink".
    """

    class Settings(Downlink.Settings):
        name: Literal["analog"] = "analog"
        snr_db: Decibels = declare_stackable(20.0)
        """mean power of a broadcast symbol over the complex noise variance at a device in dB, equal
        for all devices except for fading"""
        snr_growth: float = declare_stackable(0.0, ge=0, le=8)
        """power of the round by which the SNR grows, (t + 1)^growth: 2 adds 20 log10(t + 1) dB in
        round t"""
        fading: bool = False
        """whether the downlink has Rayleigh fading, which the devices know"""
        estimator: Literal["inversion", "mmse"] = "inversion"
        """estimate of the parameters: division by the channel (inversion), which is very noisy in a
        deep fade, or a linear estimate with the smallest mean squared error (mmse)"""

    def __init__(self, settings: Settings, setup: DownlinkSetup) -> None:
        super().__init__(settings, setup)
        self._snr = db_to_linear(setup.hyper["snr_db"])
        self._growth = setup.hyper["snr_growth"]
        self._grows = bool(self._growth.any())
        self._bandwidth_hz = setup.budget.bandwidth_hz.cpu().numpy().astype(float)

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> BroadcastDelivery:
        """Send the floating-point tensors uncoded, and the other numbers digitally."""
        analogue = {n: b for n, b in broadcast.tensors.items() if b.is_floating_point()}
        num_coordinates = Broadcast(analogue).num_coordinates
        words = WORD * (broadcast.num_sent - num_coordinates + 1)
        times = count_copies(broadcast, cohort)
        return BroadcastDelivery(
            broadcast,
            times * (num_coordinates / self._bandwidth_hz + words / self.setup.rate_bps),
            times * words,
            self._add_noise(analogue, broadcast.per_device, num_coordinates, cohort, round),
        )

    def _add_noise(
        self, blocks: Tensors, per_device: bool, num_coordinates: int, cohort: Cohort, round: int
    ) -> Distort | None:
        """Return the function that replaces x by s (x + e) at the rows; None without tensors.

        The tensors are [S, *shape], or [N, *shape] if they differ between devices.
        """
        if not blocks:
            return None
        streams = self.setup.streams
        norms = [
            torch.linalg.vector_norm(block.flatten(1), dim=1, dtype=torch.float64)
            for block in blocks.values()
        ]
        power = torch.stack(norms).square().sum(0) / max(1, num_coordinates)
        if not per_device:
            power = power[cohort.trial]
        snr = 2.0 * self._snr[cohort.trial]  # of a real number
        if self._grows:
            snr = snr * (self._growth[cohort.trial] * math.log1p(round)).exp()
        if self.settings.fading:
            draw = streams.draw_device_normal(FADING, round, cohort.trial, cohort.device, (2,))
            snr = snr * (draw.square().sum(1) / 2.0)  # |h|^2
        spread = (power / snr).sqrt().to(snr.dtype)
        shrink = snr / (1.0 + snr) if self.settings.estimator == "mmse" else None

        def distort(blocks: Tensors, cohort: Cohort, place: Tensor) -> None:
            pair = cohort.trial, cohort.device
            for name, block in blocks.items():
                if block.is_floating_point():
                    z = streams.draw_device_normal(DOWNLINK / name, round, *pair, block.shape[1:])
                    block.addcmul_(unsqueeze_like(spread[place], block), z)
                    if shrink is not None:
                        block.mul_(unsqueeze_like(shrink[place], block))

        return distort
