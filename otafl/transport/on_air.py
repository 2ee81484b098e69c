"""Hold a group at the stations of its way over the air: the symbols that devices have, the scalar
channels behind the server's combiner, and the transmission that the power policy makes of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, Coefficients
from otafl.transport.limits import SentPart
from otafl.transport.segments import Segments, energies, segment_sums
from otafl.transport.superpose import Signal, squared_norm


@dataclass(frozen=True)
class Symbols:
    """Hold what devices have to send of a group, normalised.

    sent: the rows, without the means that were taken off. segments: Q of them. lengths: [Q] channel
    uses of each. means: [n, Q] taken off, None where nothing was. scale: [n] what a row is
    multiplied with before p, K w_k for a mean. row_energy: [n, Q], energy: [S, Q, K] sum of squares
    of a segment before p. power: [S, Q, K] mean symbol power m of the normalised stretch before p.
    sends: [S, K] bool, who sends.
    """

    sent: Signal
    segments: Segments
    lengths: Tensor
    means: Tensor | None
    scale: Tensor
    row_energy: Tensor
    energy: Tensor
    power: Tensor
    sends: Tensor


@dataclass(frozen=True)
class ScalarChannels:
    """Hold the channels behind the server's combiner, whose noise is that of one antenna.

    sends: [S, K] bool, who sends. h, h_hat: [S, Q, K] complex, true and believed. noise: [S, Q]
    variance of one received real. antennas: A.
    """

    sends: Tensor
    h: Tensor
    h_hat: Tensor
    noise: Tensor
    antennas: int


@dataclass(frozen=True)
class OnAir:
    """Hold one group's transmission.

    part: what crashing devices have sent, None where none do. gain: [S, Q, K] complex h p /
    sqrt(eta), whose real part is c_k. active_rows: [n, Q], 1 for the rows on air in a segment, else
    0. weight: [S, Q], W on air. unit: [S, Q] what the receiver multiplies Re(f^H y) / sqrt(eta)
    with: 1 / (K W) for a mean, 1 / K where the sum is divided coordinate by coordinate, 1 for a
    sum.
    """

    symbols: Symbols
    channels: ScalarChannels
    coefficients: Coefficients
    part: SentPart | None
    gain: Tensor
    active_rows: Tensor
    weight: Tensor
    unit: Tensor

    @property
    def segments(self) -> Segments:
        """Return the group's segments."""
        return self.symbols.segments

    @property
    def signal(self) -> Signal:
        """Return the rows as far as they are sent."""
        return self.symbols.sent if self.part is None else self.part.signal

    @property
    def energy(self) -> Tensor:
        """Return the sum of squares of what each device sends before p, [S, Q, K]."""
        symbols = self.symbols
        if self.part is None:
            return symbols.energy
        sent = energies(self.part.signal, self.segments) * symbols.scale.square()[:, None]
        return symbols.sent.grid(sent).mT

    @property
    def believed(self) -> Tensor:
        """Return the gain [S, Q, K] as the server believes it to be."""
        return self.channels.h_hat * sent_gain(self.coefficients)

    @property
    def row_unit(self) -> Tensor:
        """Return a row's scale before p times what the receiver multiplies with, [n, Q]."""
        return self.symbols.scale[:, None] * self.unit[self.symbols.sent.cohort.trial]

    @property
    def row_gain(self) -> Tensor:
        """Return what a row's symbol is multiplied with on its way to the estimate, [n, Q]
        complex."""
        return self.symbols.sent.at_rows(self.gain.mT) * self.row_unit

    @property
    def variance(self) -> Tensor:
        """Return the noise variance [S, Q] of an estimated real, 0 where nobody is on air."""
        variance = self.channels.noise / self.coefficients.eta * self.unit.square()
        return variance * (self.weight > 0)


def normalise(sent: Signal, segments: Segments, centre: bool) -> Symbols:
    """Scale the rows to what devices send before p, and take their powers.

    Parameters
    ----------
    sent : the rows [n, P].
    segments : Q segments, of some normalised stretches.
    centre : take the mean of each normalised stretch off, but of rows that know different parts.
    """
    means = stretch_means(sent, segments) if centre and sent.mask is None else None
    if means is not None:
        sent = replace(sent, x=sent.x - segments.at_reals(means, sent.reals))
    scale = sent.exact
    if sent.linear:
        scale = scale * sent.cohort.rows_of[sent.cohort.trial]  # K w_k
    energy = energies(sent, segments) * scale.square()[:, None]
    lengths = energy.new_tensor(segments.lengths)
    return Symbols(
        sent=sent,
        segments=segments,
        lengths=lengths,
        means=means,
        scale=scale,
        row_energy=energy,
        energy=sent.grid(energy).mT,
        power=sent.grid(segments.by_scope(energy) / segments.by_scope(lengths)).mT,
        sends=sent.on_air(),
    )


def transmitted(
    symbols: Symbols,
    channels: ScalarChannels,
    coefficients: Coefficients,
    part: SentPart | None,
) -> OnAir:
    """Say who is on air, and with what gains.

    Parameters
    ----------
    symbols, channels : of the group, Q segments.
    coefficients : p [S, Q, K], eta [S, Q] and who is active.
    part : what crashing devices have sent.
    """
    sent = symbols.sent
    active_rows = sent.at_rows(coefficients.active.mT).to(symbols.scale.dtype)
    weight = sent.weight.new_zeros(sent.cohort.trials, len(symbols.segments.bounds))
    weight.index_add_(0, sent.cohort.trial, sent.weight[:, None] * active_rows)
    unit = torch.ones_like(weight)
    if sent.linear:
        unit = unit / sent.cohort.rows_of.clamp_min(1.0)[:, None]
        if sent.mask is None:
            unit = unit / weight.clamp_min(1e-12)
    gain = channels.h * sent_gain(coefficients)
    return OnAir(symbols, channels, coefficients, part, gain, active_rows, weight, unit)


def sent_gain(coefficients: Coefficients) -> Tensor:
    """Return p / sqrt(eta) [S, Q, K]."""
    return coefficients.p / coefficients.eta.sqrt()[..., None]


def stretch_means(sent: Signal, segments: Segments) -> Tensor:
    """Return the mean of each normalised stretch, at each of its segments: [n, Q]."""
    total = sent.x.new_zeros(len(sent.x), len(segments.bounds))
    reals = total.new_zeros(len(segments.bounds))
    for part in segments.parts(sent.x):
        for q, (first, stop) in enumerate(segments.bounds):
            total[:, q] += part[:, first:stop].sum(1)
            reals[q] += part[:, first:stop].shape[1]
    return segments.by_scope(total) / segments.by_scope(reals)


def variation(symbols: Symbols) -> Tensor:
    """Return the squared multivariate coefficient of variation of what is sent over the devices,
    [S, Q]: power about the devices' common mean, over that of the mean (unbiased in K, at least
    0)."""
    sent, segments, energy = symbols.sent, symbols.segments, symbols.row_energy
    k = sent.cohort.rows_of[:, None]
    total = energy.new_zeros(len(k), energy.shape[1]).index_add_(0, sent.cohort.trial, energy)
    both = torch.zeros_like(total)
    coefficient = symbols.scale[:, None, None].expand(-1, len(segments.bounds), 1)
    for part in segments.parts(sent.x):
        sums = segment_sums(sent, part, coefficient, segments)[:, 0]
        for q, (first, stop) in enumerate(segments.bounds):
            both[:, q] += squared_norm(sums[:, first:stop])
    total, both = segments.by_scope(total), segments.by_scope(both)
    mean = ((both - total) / (k * (k - 1.0)).clamp_min(1.0)).clamp_min(1e-30)
    return (total / k.clamp_min(1.0) / mean - 1.0).clamp_min(0.0)


def superposed(on_air: OnAir, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the rows as they arrive and the receiver's noise, reading the signal once.

    Parameters
    ----------
    on_air : the transmission, of rows [n, P].
    noise : [S, P] standard normal.

    Returns
    -------
    The estimate [S, P], and the error-free aggregate [S, P] of what was sent.
    """
    signal, segments, spread = on_air.signal, on_air.segments, on_air.variance.sqrt()
    exact = signal.exact[:, None].expand(-1, len(segments.bounds))
    gain = on_air.row_gain
    columns = [gain.real, exact]
    if segments.halves == 2:
        columns.append(gain.imag)
    together = torch.stack(columns, 2)
    sums = [segment_sums(signal, part, together, segments) for part in segments.parts(signal.x)]
    if len(sums) == 1:
        estimate, target = sums[0][:, 0], sums[0][:, 1]
        for q, (first, stop) in enumerate(segments.bounds):
            estimate[:, first:stop].addcmul_(noise[:, first:stop], spread[:, q, None])
        return estimate, target
    one, two = sums
    width = two.shape[2]  # the second quadrature may be one symbol short
    one[:, 0, :width] -= two[:, 2]
    two[:, 0] += one[:, 2, :width]
    estimate = torch.cat([one[:, 0], two[:, 0]], 1)
    estimate += noise * segments.at_reals(spread, signal.reals)
    return estimate, torch.cat([one[:, 1], two[:, 1]], 1)


def of_means(symbols: Symbols, scale: Tensor, on_air: OnAir | None) -> Tensor:
    """Return sum_k scale_k means_k at every real, [S, P], as received from the active devices of a
    transmission, or from all."""
    assert symbols.means is not None
    rows = scale[:, None] * symbols.means
    if on_air is not None:
        rows = rows * on_air.active_rows
    cohort = symbols.sent.cohort
    total = rows.new_zeros(cohort.trials, rows.shape[1]).index_add_(0, cohort.trial, rows)
    if on_air is not None:
        total = total * on_air.unit
    return symbols.segments.at_reals(total, symbols.sent.reals)


def reached_weight(on_air: OnAir) -> Tensor:
    """Return the weight on air that knows each coordinate, [S, P]."""
    sent, segments = on_air.symbols.sent, on_air.segments
    assert sent.mask is not None
    weight = (sent.weight[:, None] * on_air.active_rows)[..., None]
    parts = [segment_sums(sent, part, weight, segments)[:, 0] for part in segments.parts(sent.mask)]
    return torch.cat(parts, 1)


def saved(index: int, on_air: OnAir, gram: bool) -> Blocks:
    """Return what the aggregation error follows from, given the Gram matrices of the signals: in a
    segment it is a^H Gram a of the deviations a_k = g_k w_k / W - w_k, plus the noise's part."""
    sent, coefficients, channels = on_air.symbols.sent, on_air.coefficients, on_air.channels
    out = {
        f"h/{index}": channels.h,
        f"h_hat/{index}": channels.h_hat,
        f"p/{index}": coefficients.p,
        f"eta/{index}": coefficients.eta,
        f"c/{index}": on_air.gain.real,
        f"active/{index}": coefficients.active,
        f"m/{index}": on_air.symbols.power,
        f"noise/{index}": channels.noise,
        f"weight/{index}": sent.grid(sent.weight),
    }
    if on_air.part is not None:
        out[f"sent/{index}"] = on_air.part.symbols
    if gram:
        out[f"gram/{index}"] = _gram(on_air)
    return out


def _gram(on_air: OnAir) -> Tensor:
    """Return the Gram matrices of the signals of the devices, [S, Q, K, K]."""
    sent, segments = on_air.symbols.sent, on_air.segments
    parts = segments.parts(sent.grid(sent.x).flatten(0, 1))
    grams = []
    for first, stop in segments.bounds:
        rows = parts[0][:, first:stop]
        if len(parts) == 2:
            second = parts[1][:, first:stop]
            missing = rows.shape[1] - second.shape[1]
            rows = torch.complex(rows, torch.nn.functional.pad(second, (0, missing)))
        rows = rows.unflatten(0, on_air.gain.shape[::2])
        grams.append(torch.matmul(rows.conj(), rows.mT))
    return torch.stack(grams, 1)
