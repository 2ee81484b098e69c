"""The downlink: how the server's broadcast reaches the devices, how long that takes, what it costs.

Analogue: the server sends the model's reals x uncoded, one a symbol, scaled to a mean power P by
their mean square m, which it tells beside. Device k knows its channel h_k and hears
|h_k| sqrt(P / m) x + n, n of variance N = sigma^2 / 2 as in the uplink; gamma = P / sigma^2. It
divides by the channel: x + e, e of variance m / (2 gamma |h_k|^2). Or it takes the linear MMSE
estimate, s (x + e) with s = 2 gamma |h_k|^2 / (1 + 2 gamma |h_k|^2), of squared error m (1 - s),
which a deep fade cannot blow up. Amiri, Gunduz, Kulkarni, Poor 2022, "Convergence of Federated
Learning Over a Noisy Downlink".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Blocks, Broadcast, Cohort, Hyper, LinkBudget, taken
from otafl.core.rng import Streams
from otafl.transport.config import AnalogDownlinkConfig, IdealDownlinkConfig

WORD = 32.0
"""Bits of a number that is sent digitally."""


@dataclass(frozen=True)
class DownlinkSetup:
    """What every downlink is built from. rate_bps: [S] of what is sent digitally. hyper: its own
    stackable fields."""

    rate_bps: np.ndarray
    budget: LinkBudget
    streams: Streams
    hyper: Hyper


@dataclass(frozen=True)
class Noise:
    """What the rows of a cohort hear in place of x: shrink (x + spread z). spread, shrink: [N]."""

    spread: Tensor
    shrink: Tensor | None
    streams: Streams
    round: int

    def on(self, blocks: Blocks, cohort: Cohort, start: int, stop: int) -> Blocks:
        """Blocks [n, *shape] of the rows start..stop, cohort [n], as they are heard; in place."""
        for name, block in blocks.items():
            if not block.is_floating_point():
                continue
            row = (-1, *[1] * (block.dim() - 1))
            z = self.streams.device_normal(
                f"downlink/{name}", self.round, cohort.trial, cohort.device, block.shape[1:]
            )
            block.addcmul_(self.spread[start:stop].view(row), z)
            if self.shrink is not None:
                block.mul_(self.shrink[start:stop].view(row))
        return blocks

    def taken(self, rows: Tensor) -> Noise:
        """Of the named rows [n] int64."""
        shrink = None if self.shrink is None else self.shrink[rows]
        return replace(self, spread=self.spread[rows], shrink=shrink)


@dataclass(frozen=True)
class Arrival:
    """A broadcast on its way to a cohort. sent: what the server sent. seconds: [S] until it is
    over. bits: [S], all copies together. noise: None where it arrives without error. heard: [N]
    bool, rows that got it; None for all. row_seconds: [N] from the start until a row has it, or is
    given up; None where all have it when it is over."""

    sent: Broadcast
    seconds: np.ndarray
    bits: np.ndarray
    noise: Noise | None = None
    heard: Tensor | None = None
    row_seconds: np.ndarray | None = None

    @property
    def reals(self) -> int:
        """Real numbers in one copy."""
        return self.sent.reals

    def taken(self, keep: Tensor) -> Arrival:
        """At the rows [N] bool alone, as if all of them had it; seconds and bits stay what they
        are."""
        rows, sent, seconds = keep.nonzero().squeeze(1), self.sent, self.row_seconds
        if sent.per_device:
            sent = replace(sent, blocks={name: taken(b, rows) for name, b in sent.blocks.items()})
        if sent.reals_of is not None:
            sent = replace(sent, reals_of=sent.reals_of[rows])
        return replace(
            self,
            sent=sent,
            noise=None if self.noise is None else self.noise.taken(rows),
            heard=None,
            row_seconds=None if seconds is None else seconds[rows.cpu().numpy()],
        )

    def rows(self, cohort: Cohort, start: int, stop: int) -> Broadcast:
        """What the rows start..stop of the cohort get, always a fresh copy."""
        own = self.sent.rows(cohort, start, stop)
        if self.noise is None:
            return own
        chunk = cohort if stop - start == cohort.size else cohort.rows(start, stop)
        return Broadcast(self.noise.on(own.blocks, chunk, start, stop), per_device=True)


class Downlink(Protocol):
    """Made as `implementation(config, setup)`."""

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival: ...


class IdealDownlink:
    """Without error, 32 bits a number, at the devices' downlink rate."""

    def __init__(self, config: IdealDownlinkConfig, setup: DownlinkSetup) -> None:
        self._rate_bps = setup.rate_bps

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        if broadcast.reals_of is not None:
            return self._parts(broadcast, broadcast.reals_of, cohort)
        bits = WORD * broadcast.reals
        return Arrival(broadcast, bits / self._rate_bps, _copies(broadcast, cohort) * bits)

    def _parts(self, broadcast: Broadcast, reals_of: Tensor, cohort: Cohort) -> Arrival:
        """Each device gets its own part, all at once; the largest takes longest."""
        bits = WORD * reals_of.double()
        total = torch.zeros(cohort.trials, dtype=bits.dtype, device=bits.device)
        longest = total.scatter_reduce(0, cohort.trial, bits, "amax").cpu().numpy()
        total = total.index_add(0, cohort.trial, bits)
        return Arrival(broadcast, longest / self._rate_bps, total.cpu().numpy())


class AnalogDownlink:
    """Uncoded, one real a symbol; a broadcast that is not the same for all devices goes out to one
    device after the other. Integers in it, and the mean square, are sent digitally."""

    def __init__(self, config: AnalogDownlinkConfig, setup: DownlinkSetup) -> None:
        self._config, self._setup = config, setup
        self._snr = 10.0 ** (setup.hyper["snr_db"] / 10.0)
        self._bandwidth_hz = setup.budget.bandwidth_hz.cpu().numpy().astype(float)

    def send(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Arrival:
        analogue = {n: b for n, b in broadcast.blocks.items() if b.is_floating_point()}
        reals = Broadcast(analogue).reals
        words = WORD * (broadcast.reals - reals + 1)
        copies = _copies(broadcast, cohort)
        return Arrival(
            broadcast,
            copies * (reals / self._bandwidth_hz + words / self._setup.rate_bps),
            copies * words,
            self._noise(analogue, broadcast.per_device, reals, cohort, round),
        )

    def _noise(
        self, blocks: Blocks, per_device: bool, reals: int, cohort: Cohort, round: int
    ) -> Noise | None:
        if not blocks:
            return None
        power = torch.stack(
            [torch.linalg.vector_norm(b.flatten(1), dim=1).square() for b in blocks.values()]
        ).sum(0) / max(1, reals)
        if not per_device:
            power = power[cohort.trial]
        snr = 2.0 * self._snr[cohort.trial]  # of a real
        if self._config.fading:
            snr = snr * self._gain(cohort, round)
        shrink = snr / (1.0 + snr) if self._config.estimator == "mmse" else None
        return Noise((power / snr).sqrt(), shrink, self._setup.streams, round)

    def _gain(self, cohort: Cohort, round: int) -> Tensor:
        """[N]: |h|^2 of Rayleigh fading, independent over devices and rounds."""
        draw = self._setup.streams.device_normal(
            "downlink_fading", round, cohort.trial, cohort.device, (2,)
        )
        return draw.square().sum(1) / 2.0


def _copies(broadcast: Broadcast, cohort: Cohort) -> np.ndarray:
    """[S]: how often the server sends."""
    if broadcast.per_device:
        return np.array(cohort.counts, dtype=float)
    return np.ones(cohort.trials)
