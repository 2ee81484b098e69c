"""All random numbers of receiver noise, interference and phase errors, of every scheme.

The noise of one antenna is CN(0, 1), so that a real number has the variance N = 1/2. Interferers
and a jammer have independent Rayleigh fading and white Gaussian symbols. Each payload group has
streams of its own, named after its index.

References
----------
Chambers, Mallows, Stuck 1976, "A Method for Simulating Stable Random Variables".
Yang, Chen, Quek, Poor 2022, "Revisiting Analog Over-the-Air Machine Learning: The Blessing and
    Curse of Interference".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from otafl.core.contracts import NOISE_VARIANCE, Cohort
from otafl.core.rng import Streams, declare_family, declare_purpose, make_step_key
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.signal import Signal

NOISE = declare_family("noise", __name__)
CODED = declare_family("coded", __name__)
PHASES = declare_family("random_phases", __name__)
ENERGY_NOISE = declare_family("energy_noise", __name__)
ACROSS = declare_family("noise_across", __name__)
INTERFERING = declare_family("interfering_symbols", __name__)
HEAVY_TAILS = declare_family("heavy_tails", __name__)
INTERFERENCE = declare_purpose("interference", __name__)
PHASE = declare_purpose("residual_phase", __name__)
CARRIER = declare_purpose("carrier_offset", __name__)
TIMING = declare_purpose("timing_offset", __name__)


def draw_noise(streams: Streams, sent: Signal, round: int) -> Tensor:
    """Draw the noise of the real numbers that a group receives, standard normal [S, P]."""
    return streams.draw_normal(NOISE / sent.index, round, (sent.num_coordinates,))


def draw_count_noise(
    streams: Streams, index: int, round: int, part: int, shape: tuple[int, int]
) -> Tensor:
    """Draw the noise of the counts of a part of a group, standard normal [S, M, C]."""
    return streams.draw_normal(NOISE / index, make_step_key(round, part), shape)


def draw_bit_noise(
    streams: Streams, index: int, round: int, rows: tuple[Tensor, Tensor], shape: tuple[int, ...]
) -> Tensor:
    """Draw the noise of coded bits, standard normal [n, *shape], for rows (trial, device)."""
    return streams.draw_device_normal(CODED / index, round, *rows, shape)


def draw_sample_noise(
    streams: Streams,
    impairments: Impairments,
    round: int,
    like: Tensor,
    part: tuple[int, int] | None = None,
) -> Tensor:
    """Draw the noise and the interference of samples [S, A, M, n], complex like them.

    `part` is the group's index and the number of the part of its samples, if there are several.
    """
    antennas, each = like.shape[1], math.prod(like.shape[2:])
    place, key = ("", round) if part is None else (f"/{part[0]}", make_step_key(round, part[1]))

    def circular(name: str, count: int) -> Tensor:
        draw = streams.draw_normal(NOISE / (name + place), key, (count, each, 2)) * math.sqrt(0.5)
        return torch.view_as_complex(draw.contiguous())

    noise = circular("antennas", antennas)
    if impairments.adds_noise:
        others = draw_interferers(impairments, antennas, round)
        noise = noise + others.mT @ circular("interferers", others.shape[1])
    return noise.view_as(like)


def draw_symbol_bits(
    streams: Streams, index: int, round: int, cohort: Cohort, num_words: int
) -> Tensor:
    """Draw the random bits of the rows' QPSK symbols, int32 [N, 2 num_words]."""
    words = streams.draw_device_words(PHASES / index, round, cohort.trial, cohort.device, num_words)
    return words.view(torch.int32)


def draw_energy_noise(
    streams: Streams, index: int, round: int, antennas: int, num_coordinates: int
) -> tuple[Tensor, Tensor | None]:
    """Draw the noise of pairs of energies.

    Returns
    -------
    along : Tensor, int64 [S, P]
        Random words for the noise in the direction of the signal.
    across : Tensor, float [S, A - 1, 2, P], or None
        Uniform numbers for the noise of A antennas orthogonal to it; None for one antenna.
    """
    along = streams.draw_words(ENERGY_NOISE / index, round, num_coordinates)
    if antennas == 1:
        return along, None
    shape = (antennas - 1, 2, num_coordinates)
    return along, streams.draw_uniform(ACROSS / index, round, shape)


def draw_interfering_symbols(
    streams: Streams, index: int, round: int, count: int, num_coordinates: int
) -> Tensor:
    """Draw the symbols of interferers on pairs, real and imaginary parts [S, 2, count, 2, P]."""
    shape = (2, count, 2, num_coordinates)
    return streams.draw_normal(INTERFERING / index, round, shape) * math.sqrt(2.0)


def draw_variance(impairments: Impairments, combiner: Tensor, round: int) -> Tensor:
    """Draw the noise variance of one received real number behind the combiner.

    Parameters
    ----------
    impairments : Impairments
        Powers of interferers and jammer, and the fall of the receiver's noise.
    combiner : Tensor, complex [S, Q, A]
        Combiner f with unit norm.
    round : int
        The round.

    Returns
    -------
    Tensor, float [S, Q]
        Variance of noise, interference and jamming.
    """
    white = combiner.real.new_full(combiner.shape[:2], NOISE_VARIANCE)
    share = impairments.compute_noise_share(round)[:, None] if impairments.grows else 1.0
    if not impairments.adds_noise:
        return white * share
    num_interferers = impairments.settings.interferers
    h = _draw_interfering_channels(impairments, combiner.shape[2], round)
    gains = torch.einsum("sqa,sja->sqj", combiner.conj(), h).abs().square()
    power = impairments.interference[:, None] * gains[..., :num_interferers].sum(-1)
    return white * (share + power + impairments.jammer[:, None] * gains[..., num_interferers])


def draw_interferers(impairments: Impairments, antennas: int, round: int) -> Tensor:
    """Draw the channels [S, J, A] of interferers and a jammer.

    Their symbols are CN(0, 1), relative to noise with the variance of one antenna.
    """
    power = impairments.interference[:, None].repeat(1, impairments.settings.interferers + 1)
    power[:, -1] = impairments.jammer
    h = _draw_interfering_channels(impairments, antennas, round)
    return h * (2.0 * NOISE_VARIANCE * power).sqrt()[..., None]


def _draw_interfering_channels(impairments: Impairments, antennas: int, round: int) -> Tensor:
    """Draw the fading [S, J, A] of the interferers and, last, of the jammer."""
    shape = (impairments.settings.interferers + 1, antennas, 2)
    draw = impairments.streams.draw_normal(INTERFERENCE, round, shape)
    return torch.view_as_complex(draw.contiguous()) * math.sqrt(0.5)


def draw_tails(impairments: Impairments, sent: Signal, round: int) -> Tensor:
    """Draw heavy-tailed interference [S, P] of a group behind the combiner."""
    stream, alpha = HEAVY_TAILS / sent.index, impairments.tail_index
    unit = draw_alpha_stable(impairments.streams, stream, round, alpha, sent.num_coordinates)
    return unit * impairments.tail_scale[:, None]


def draw_alpha_stable(
    streams: Streams, stream: str, round: int, alpha: Tensor, count: int
) -> Tensor:
    r"""Draw independent symmetric alpha-stable numbers of unit scale.

    Their characteristic function is exp(-|t|^alpha). At alpha = 2 they are normal with variance 2;
    for a smaller alpha the variance is infinite.

    Parameters
    ----------
    streams, stream, round : Streams, str and int
        Source of the random numbers.
    alpha : Tensor, float [S]
        Tail indices, above 1 and at most 2.
    count : int
        Numbers for each trial.

    Returns
    -------
    Tensor, float [S, count]
        The numbers.

    Notes
    -----
    With V uniform in (-pi / 2, pi / 2) and W exponential of mean one, the method of Chambers,
    Mallows and Stuck gives, for symmetric distributions,

    .. math::

        \frac{\sin(\alpha V)}{\cos(V)^{1 / \alpha}}
        \left( \frac{\cos((1 - \alpha) V)}{W} \right)^{(1 - \alpha) / \alpha}

    Angles are in double precision, because the tail comes from V near pi / 2.
    """
    uniform = streams.draw_uniform(stream, round, (2, count)).double()
    index = alpha.double()[:, None]
    angle, wait = math.pi * (uniform[:, 0] - 0.5), -uniform[:, 1].log()
    tail = (index * angle).sin() / angle.cos() ** (1.0 / index)
    body = (((1.0 - index) * angle).cos() / wait) ** ((1.0 - index) / index)
    return (tail * body).to(streams.dtype)


def draw_phases(impairments: Impairments, devices: int, round: int) -> Tensor:
    """Draw the residual phases [S, K] in radians."""
    return _draw_uniform(impairments, PHASE, devices, round) * impairments.residual_phase[:, None]


def draw_offsets(impairments: Impairments, devices: int, round: int) -> tuple[Tensor, Tensor]:
    """Draw carrier offsets [S, K] in cycles per symbol, and delays [S, K] in symbols."""
    carrier = (
        _draw_uniform(impairments, CARRIER, devices, round) * impairments.carrier_offset[:, None]
    )
    delay = 0.5 * (1.0 + _draw_uniform(impairments, TIMING, devices, round))
    return carrier, delay * impairments.timing_offset[:, None]


def _draw_uniform(impairments: Impairments, purpose: str, devices: int, round: int) -> Tensor:
    """Draw uniform numbers in (-1, 1) for each device, [S, K]."""
    streams = impairments.streams
    draw = streams.draw_device_uniform(purpose, round, *streams.list_pairs(devices), ())
    return 2.0 * draw.view(-1, devices) - 1.0
