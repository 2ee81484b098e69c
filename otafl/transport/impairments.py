"""What goes wrong on an over-the-air uplink beside noise and fading: residual phases, interference
and jamming, and what bends a device's signal within a payload: carrier and timing offsets, clipped
peaks. Timing after Shao, Gunduz, Liew 2021, "Federated Edge Learning with Misaligned Over-the-Air
Computation": rectangular pulses, a delay of less than one symbol."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.core.contracts import NOISE_VARIANCE
from otafl.core.rng import Streams
from otafl.core.units import db_to_linear
from otafl.transport.config import ImpairmentsConfig
from otafl.transport.misaligned import SampleSums, aligned_noise, lmmse_filter
from otafl.transport.segments import Segments, segment_sums
from otafl.transport.superpose import Signal

CHUNK = 1 << 18
"""Reals of a payload bent at a time; they and what is made of them fit the processor's cache."""


@dataclass(frozen=True)
class Impairments:
    """Of S trials, all [S] and linear: residual_phase (radians), carrier_offset (cycles a symbol),
    timing_offset (symbols), clip (peak over mean budget, inf: none), interference (of each
    interferer), jammer (both over the noise), adc_range (over the root mean square). config: what
    all trials share. bends: whether any trial's symbols are not only scaled."""

    config: ImpairmentsConfig
    residual_phase: Tensor
    carrier_offset: Tensor
    timing_offset: Tensor
    clip: Tensor
    interference: Tensor
    jammer: Tensor
    adc_range: Tensor
    bends: bool
    streams: Streams

    @staticmethod
    def of(
        configs: Sequence[ImpairmentsConfig], jammer: Tensor | None, streams: Streams
    ) -> Impairments:
        """Of the trials' settings; jammer: [S] power over the noise, or None."""

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=streams.dtype, device=streams.device)

        def level(value_db: float | None, without: float) -> float:
            return without if value_db is None else db_to_linear(value_db)

        return Impairments(
            config=configs[0],
            residual_phase=column([one.residual_phase_rad for one in configs]),
            carrier_offset=column([one.carrier_offset for one in configs]),
            timing_offset=column([one.timing_offset for one in configs]),
            clip=column([level(one.clip_db, math.inf) for one in configs]),
            interference=column([level(one.interference_db, 0.0) for one in configs]),
            jammer=column([0.0] * len(configs)) if jammer is None else jammer,
            adc_range=column([one.adc_range for one in configs]),
            bends=any(one.bends for one in configs),
            streams=streams,
        )

    @functools.cached_property
    def reshapes(self) -> bool:
        """Whether any trial's symbols are turned or clipped one by one."""
        return bool(self.carrier_offset.any() or self.clip.isfinite().any())

    @functools.cached_property
    def disturbed(self) -> bool:
        """Whether any trial has interference or a jammer."""
        return bool(self.interference.any() or self.jammer.any())

    @functools.cached_property
    def turned(self) -> bool:
        """Whether any trial has residual phases."""
        return bool(self.residual_phase.any())

    @functools.cached_property
    def known_noise(self) -> Tensor:
        """[S]: N and the mean of the interference, as the server expects them."""
        return NOISE_VARIANCE * (1.0 + self.config.interferers * self.interference)

    def noise(self, combiner: Tensor, round: int) -> Tensor:
        """[S, Q]: variance of one received real after combining with f [S, Q, A] of unit norm: the
        noise, and interferers and a jammer of independent Rayleigh fading that send white Gaussian
        symbols."""
        trials, segments, antennas = combiner.shape
        white = combiner.new_ones(trials, segments, dtype=self.clip.dtype) * NOISE_VARIANCE
        if not self.disturbed:
            return white
        heard = self.config.interferers
        draw = self.streams.normal("interference", round, (heard + 1, antennas, 2))
        h = torch.view_as_complex(draw.contiguous()) * math.sqrt(0.5)
        gains = torch.einsum("sqa,sja->sqj", combiner.conj(), h).abs().square()
        power = self.interference[:, None] * gains[..., :heard].sum(-1)
        return white * (1.0 + power + self.jammer[:, None] * gains[..., heard])

    def phases(self, devices: int, round: int) -> Tensor | None:
        """[S, K] radians left after pre-compensation; None where no trial has any."""
        if not self.turned:
            return None
        return self._spread("residual_phase", devices, round) * self.residual_phase[:, None]

    def offsets(self, devices: int, round: int) -> tuple[Tensor, Tensor]:
        """[S, K] carrier offsets in cycles a symbol, and delays in symbols."""
        carrier = self._spread("carrier_offset", devices, round) * self.carrier_offset[:, None]
        delay = 0.5 * (1.0 + self._spread("timing_offset", devices, round))
        return carrier, delay * self.timing_offset[:, None]

    def quantise(self, received: Tensor) -> Tensor:
        """The server's converter on received reals [S, ...]: mid-rise, uniform, its full scale set
        to so many root mean squares of each trial's payload."""
        bits = self.config.adc_bits
        if bits is None:
            return received
        rows = received.flatten(1)
        rms = torch.linalg.vector_norm(rows, dim=1, keepdim=True) / math.sqrt(rows.shape[1])
        top = (self.adc_range[:, None] * rms).clamp_min(1e-30)
        step = 2.0 * top / 2**bits
        level = torch.floor(rows / step).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return ((level + 0.5) * step).view_as(received)

    def _spread(self, purpose: str, devices: int, round: int) -> Tensor:
        """[S, K] uniform in (-1, 1), each device's own."""
        trials = len(self.clip)
        pair = torch.arange(trials * devices, device=self.clip.device)
        trial, device = pair // devices, pair % devices
        draw = self.streams.device_uniform(purpose, round, trial, device, ())
        return 2.0 * draw.view(trials, devices) - 1.0


@dataclass(frozen=True)
class Bent:
    """How the rows of a group are bent, and what the server knows of it.

    gain: [n, Q] complex, what a row's symbol is multiplied with on its way to the estimate.
    believed: [n, Q] real part of the same with the estimated channel. target: [n, Q] weight of a
    row in the error-free aggregate. power: [n, Q] mean symbol power of a row, before the gain.
    amplitude: [n, Q] what a row's symbol is multiplied with in magnitude before it is sent. peak:
    [n] largest magnitude that is sent, inf: any. carrier, delay: [n]. noise: [S, Q] variance of an
    estimated real.
    """

    gain: Tensor
    believed: Tensor
    target: Tensor
    power: Tensor
    amplitude: Tensor
    peak: Tensor
    carrier: Tensor
    delay: Tensor
    noise: Tensor


def bent_sum(
    sent: Signal, segments: Segments, bent: Bent, impairments: Impairments, round: int, stream: str
) -> Tensor:
    """[S, P]: the estimate from rows whose symbols are bent, noise included."""
    rule = impairments.config.timing_receiver
    on = bent.gain.abs().amax(1) > 0
    delay = _from_first(sent, bent.delay, on)
    timed = bool(impairments.timing_offset.any())
    if timed and rule == "lmmse":
        return _lmmse(sent, segments, bent, delay, impairments, round, stream)
    spread = bent.noise.sqrt()
    if timed and rule == "aligned_sample":
        spread = spread * aligned_noise(sent, delay, on).sqrt()[:, None]
        delay = torch.zeros_like(delay)
    column = segments.of_columns(sent.x.device)
    flat = []
    for part in _sums(sent, segments, bent, torch.stack([1.0 - delay, delay], 1), impairments):
        late = torch.nn.functional.pad(part[:, 1, :-1], (1, 0))  # of the symbol before
        flat.append(part[:, 0] + late)
    scale = torch.cat([spread[:, column]] * segments.halves, 1)[:, : sent.reals]
    noise = impairments.streams.normal(f"noise/{stream}", round, (sent.reals,))
    return torch.cat(flat, 1)[:, : sent.reals] + noise * scale


def _sums(
    sent: Signal, segments: Segments, bent: Bent, weight: Tensor, impairments: Impairments
) -> list[Tensor]:
    """The one or two quadratures of sum_k weight[k, j] v_k, [S, J, symbols], of the rows v_k as
    they reach the receiver; weight [n, J]."""
    if impairments.reshapes:
        column = segments.of_columns(sent.x.device)
        chunks = _bent_chunks(sent, segments, bent, column, CHUNK)
        sums = [[sent.sum(weight, part) for part in parts] for parts in chunks]
        return [torch.cat(parts, 2) for parts in zip(*sums, strict=True)]
    count = weight.shape[1]  # symbols are only scaled
    scaled = bent.gain[..., None] * weight[:, None]
    both = torch.cat([scaled.real, scaled.imag], 2)
    parts = [_padded(part, segments.symbols) for part in segments.parts(sent.x)]
    if len(parts) == 1:
        return [segment_sums(sent, parts[0], scaled.real, segments)]
    one, two = (segment_sums(sent, part, both, segments) for part in parts)
    return [one[:, :count] - two[:, count:], two[:, :count] + one[:, count:]]


def _bent_chunks(
    sent: Signal, segments: Segments, bent: Bent, column: Tensor, numbers: int
) -> Iterator[list[Tensor]]:
    """The one or two quadratures [n, C] as they reach the receiver, without noise, a chunk of
    channel uses after the other, of about so many numbers."""
    halves = segments.parts(sent.x)
    width = max(1, min(segments.symbols, numbers // max(1, len(sent.x))))
    step = bent.carrier.double()[:, None]
    turns = _rotation(step * torch.arange(width, device=column.device), bent.gain.dtype)
    for first in range(0, segments.symbols, width):
        stop = min(first + width, segments.symbols)
        q = column[first:stop] if len(segments.bounds) > 1 else slice(None)
        parts = [_padded(half[:, first:stop], stop - first) for half in halves]
        start = _rotation(step * first, bent.gain.dtype)
        gain = bent.gain[:, q] * start * turns[:, : stop - first]
        # not hypot, and no quotient with an infinite peak above: their gradients are not numbers
        size = (parts[0] if len(parts) == 1 else torch.complex(*parts)).abs()
        over = size * bent.amplitude[:, q] / bent.peak[:, None]
        parts = [part / over.clamp_min(1.0) for part in parts]
        if len(parts) == 1:
            yield [gain.real * parts[0]]
        else:
            yield [
                gain.real * parts[0] - gain.imag * parts[1],
                gain.real * parts[1] + gain.imag * parts[0],
            ]


def _rotation(turns: Tensor, dtype: torch.dtype) -> Tensor:
    """exp(2 pi j turns) of turns in double precision."""
    angle = turns.frac() * (2.0 * math.pi)
    return torch.polar(torch.ones_like(angle), angle).to(dtype)


def _lmmse(
    sent: Signal,
    segments: Segments,
    bent: Bent,
    delay: Tensor,
    impairments: Impairments,
    round: int,
    stream: str,
) -> Tensor:
    """The linear MMSE estimate from all samples of each symbol; a trial has as many samples as
    devices."""
    column = segments.of_columns(sent.x.device)
    halves = next(_bent_chunks(sent, segments, bent, column, sent.x.numel()))
    samples = SampleSums(sent.cohort, delay)
    power = bent.believed.square() * bent.power / segments.halves
    weight = bent.target / torch.where(bent.believed == 0, math.inf, bent.believed)
    taps = lmmse_filter(samples, power, weight, bent.noise)
    spread = bent.noise.sqrt()[:, column]
    flat = []
    for half, rows in enumerate(halves):
        observed = samples.of(rows)  # [S, J, symbols]
        for j in range(observed.shape[1]):
            name = f"noise/{stream}/{half}/{j}"
            noise = impairments.streams.normal(name, round, (segments.symbols,))
            observed[:, j].addcmul_(noise, spread)
        flat.append(samples.estimate(observed, taps, column))
    return torch.cat(flat, 1)[:, : sent.reals]


def _from_first(sent: Signal, delay: Tensor, on: Tensor) -> Tensor:
    """Delays [n] after the earliest device of the trial that is on air; 0 for silent ones."""
    trials = sent.cohort.trials
    earliest = delay.new_full((trials,), math.inf)
    earliest = earliest.scatter_reduce(0, sent.cohort.trial, delay.where(on, math.inf), "amin")
    return torch.where(on, delay - earliest[sent.cohort.trial], 0.0)


def _padded(rows: Tensor, columns: int) -> Tensor:
    """The second quadrature may be one symbol short."""
    return torch.nn.functional.pad(rows, (0, columns - rows.shape[1]))
