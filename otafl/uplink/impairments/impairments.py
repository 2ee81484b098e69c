"""Disturb an over-the-air uplink by more than noise and fading: residual phases, interference and
jamming, and what bends a device's signal within a payload, carrier and timing offsets and clipped
peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import registry, settings
from otafl.core.contracts import NOISE_VARIANCE
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams, declare_family, declare_purpose
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear
from otafl.uplink.impairments.alpha_stable import alpha_stable

NOISE = declare_family("noise", __name__)
"""The receiver's noise, a stream for each group of a payload."""

INTERFERENCE = declare_purpose("interference", __name__)
HEAVY_TAILS = declare_family("heavy_tails", __name__)
"""Heavy-tailed interference, a stream for each group of a payload."""
PHASE = declare_purpose("residual_phase", __name__)
CARRIER = declare_purpose("carrier_offset", __name__)
TIMING = declare_purpose("timing_offset", __name__)


class Impairments:
    """Draw what goes wrong in S trials.

    All [S] and linear: residual_phase (radians), carrier_offset (cycles a symbol), timing_offset
    (symbols), clip (peak over mean budget, inf: none), interference (of each interferer), jammer
    (both over the noise), adc_range (over the root mean square), tail_scale (of a received real)
    and tail_index. settings: what all trials share. heavy: interference has heavy tails, and
    `interference` is 0.
    known_noise: [S], N and the mean of the interference, as the server expects them. Whether any
    trial has residual phases (turns), delays, carrier offsets (spins), clipped peaks (clips), one
    of these two (reshapes), symbols that go another way than plain scaling (bends), interference
    or a jammer (disturbs).

    Parameters
    ----------
    sections : of the trials, which differ in stackable fields alone.
    jammer : [S] power over the noise, None for none.
    streams : of the S trials.
    """

    class Settings(settings.Settings):
        """Say what goes wrong on an over-the-air uplink beside noise and fading; all off by
        default. What is drawn is drawn for each device and round."""

        residual_phase_rad: float = declare_stackable(
            0.0,
            ge=0,
            le=math.pi,
            description="phase left after pre-compensation, uniform in plus or minus this",
        )
        carrier_offset: float = declare_stackable(
            0.0,
            ge=0,
            le=0.5,
            description="carrier frequency offset in cycles a symbol, uniform in plus or minus "
            "this",
        )
        timing_offset: float = declare_stackable(
            0.0,
            ge=0,
            lt=1,
            description="delay in symbols, uniform from 0 to this, of rectangular pulses",
        )
        timing_receiver: Literal["matched_filter", "aligned_sample", "lmmse"] = Field(
            "matched_filter",
            description="estimator of a sum of misaligned symbols: a filter matched to the first "
            "device's symbols, the sample in which all overlap, or linear MMSE on all samples "
            "(Shao, Gunduz, Liew 2021)",
        )
        clip_db: Decibels | None = declare_stackable(
            None,
            description="peak power of a transmitter over its budget on the mean, in dB; larger "
            "symbols are clipped",
        )
        adc_bits: int | None = Field(
            None, ge=1, le=16, description="bits of the server's analogue-to-digital converter"
        )
        adc_range: float = declare_stackable(
            3.0, gt=0, description="full scale of the converter over the received root mean square"
        )
        interference: Literal["gaussian", "alpha_stable"] = Field(
            "gaussian",
            description="gaussian: interferers of independent Rayleigh fading send white normal "
            "symbols; alpha_stable: each received real has an independent symmetric alpha-stable "
            "number on it (Yang, Chen, Quek, Poor 2022), of whose scale the server knows nothing; "
            "squared errors then have no mean, report medians",
        )
        interference_db: Decibels | None = declare_stackable(
            None,
            description="interference of neighbouring cells over the noise, in dB, each "
            "interferer's mean; the server knows the mean, not the interferers' fading. With "
            "alpha_stable 2 s^2 over the noise, s the scale, which is its power at tail_index 2",
        )
        tail_index: float = declare_stackable(
            1.5,
            gt=1,
            le=2,
            description="alpha of alpha_stable interference: the lower, the heavier its tails; 2 "
            "is normal",
        )
        interferers: int = Field(
            3, ge=1, description="devices of neighbouring cells that are heard"
        )

        def find_conflicts(self) -> Iterator[str]:
            if self.interference == "gaussian":
                if not self.is_default("tail_index"):
                    yield (
                        f"tail_index {self.tail_index:g}: gaussian interference has no heavy "
                        "tails; leave it out, or set interference to alpha_stable"
                    )
                return
            if self.interference_db is None:
                yield "interference 'alpha_stable' needs interference_db, say 0"
            if not self.is_default("interferers"):
                yield (
                    f"interferers {self.interferers}: alpha_stable interference is that of all; "
                    "leave it out, or set interference to gaussian"
                )
            if self.timing_offset and self.timing_receiver != "matched_filter":
                yield (
                    f"timing_receiver '{self.timing_receiver}' is not defined for interference "
                    "without a variance, alpha_stable; matched_filter would do"
                )

        def check(self, scenario: Any) -> Iterable[Problem]:
            transport = registry.load_component("transport", scenario.transport.name)
            if self.interference == "alpha_stable" and not transport.supports_heavy_tails:
                yield make_problem(
                    f"'alpha_stable' is heard symbol by symbol, and transport "
                    f"'{scenario.transport.name}' has none of that kind; over_the_air would do",
                    "impairments.interference",
                    "transport.name",
                )

    def __init__(
        self,
        sections: Sequence[Settings],
        jammer: Tensor | None,
        streams: Streams,
        snr_growth: Sequence[float] = (),
    ) -> None:
        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=streams.dtype, device=streams.device)

        def level(value_db: float | None, without: float) -> float:
            return without if value_db is None else db_to_linear(value_db)

        self.settings, self.streams = sections[0], streams
        self.residual_phase = column([one.residual_phase_rad for one in sections])
        self.carrier_offset = column([one.carrier_offset for one in sections])
        self.timing_offset = column([one.timing_offset for one in sections])
        self.clip = column([level(one.clip_db, math.inf) for one in sections])
        power = column([level(one.interference_db, 0.0) for one in sections])
        self.heavy = self.settings.interference == "alpha_stable"
        self.interference = torch.zeros_like(power) if self.heavy else power
        self.tail_scale = (0.5 * NOISE_VARIANCE * power).sqrt()
        self.tail_index = column([one.tail_index for one in sections])
        self.jammer = torch.zeros_like(self.clip) if jammer is None else jammer
        self.adc_range = column([one.adc_range for one in sections])
        self.snr_growth = column(list(snr_growth) or [0.0] * len(sections))
        self.grows = bool(self.snr_growth.any())
        self.known_noise = NOISE_VARIANCE * (1.0 + self.settings.interferers * self.interference)
        self.turns = bool(self.residual_phase.any())
        self.delays = bool(self.timing_offset.any())
        self.spins = bool(self.carrier_offset.any())
        self.clips = bool(self.clip.isfinite().any())
        self.reshapes = self.spins or self.clips
        self.disturbs = bool(self.interference.any() or self.jammer.any())
        self.bends = self.delays or self.reshapes or self.settings.adc_bits is not None

    def noise(self, combiner: Tensor, round: int) -> Tensor:
        """Return the variance [S, Q] of one received real after combining with f [S, Q, A] of unit
        norm: the noise, and interferers and a jammer of independent Rayleigh fading that send white
        Gaussian symbols."""
        trials, segments, antennas = combiner.shape
        white = combiner.new_ones(trials, segments, dtype=self.clip.dtype) * NOISE_VARIANCE
        share = self.compute_noise_share(round)[:, None] if self.grows else 1.0
        if not self.disturbs:
            return white * share if self.grows else white
        heard, h = self.settings.interferers, self._heard(antennas, round)
        gains = torch.einsum("sqa,sja->sqj", combiner.conj(), h).abs().square()
        power = self.interference[:, None] * gains[..., :heard].sum(-1)
        return white * (share + power + self.jammer[:, None] * gains[..., heard])

    def compute_noise_share(self, round: int) -> Tensor:
        """Compute the receiver's noise in a round over that of the first, (t + 1)^-growth, [S]."""
        return (self.snr_growth * -math.log1p(round)).exp()

    def compute_known_noise(self, round: int) -> Tensor:
        """Compute the noise variance of a received real that the server expects in a round, [S]."""
        if not self.grows:
            return self.known_noise
        return self.known_noise + NOISE_VARIANCE * (self.compute_noise_share(round) - 1.0)

    def interferers(self, antennas: int, round: int) -> Tensor | None:
        """Draw the channels [S, J, A] of the interferers and a jammer, whose symbols are CN(0, 1)
        over noise of one antenna's variance; None where no trial has any."""
        if not self.disturbs:
            return None
        power = self.interference[:, None].repeat(1, self.settings.interferers + 1)
        power[:, -1] = self.jammer
        return self._heard(antennas, round) * (2.0 * NOISE_VARIANCE * power).sqrt()[..., None]

    def tails(self, index: int, round: int, reals: int) -> Tensor | None:
        """Draw the heavy-tailed interference [S, P] on each received real of a group, behind the
        combiner; None where there is none."""
        if not self.heavy:
            return None
        stream = HEAVY_TAILS / index
        unit = alpha_stable(self.streams, stream, round, self.tail_index, reals)
        return unit * self.tail_scale[:, None]

    def phases(self, devices: int, round: int) -> Tensor | None:
        """Draw the radians [S, K] left after pre-compensation; None where no trial has any."""
        if not self.turns:
            return None
        return self._spread(PHASE, devices, round) * self.residual_phase[:, None]

    def offsets(self, devices: int, round: int) -> tuple[Tensor, Tensor]:
        """Draw carrier offsets in cycles a symbol, and delays in symbols, [S, K] each."""
        carrier = self._spread(CARRIER, devices, round) * self.carrier_offset[:, None]
        delay = 0.5 * (1.0 + self._spread(TIMING, devices, round))
        return carrier, delay * self.timing_offset[:, None]

    def quantise(self, received: Tensor) -> Tensor:
        """Put received reals [S, ...] through the server's converter: mid-rise, uniform, its full
        scale set to so many root mean squares of each trial's payload."""
        bits = self.settings.adc_bits
        if bits is None:
            return received
        rows = received.flatten(1)
        rms = torch.linalg.vector_norm(rows, dim=1, keepdim=True) / math.sqrt(rows.shape[1])
        top = (self.adc_range[:, None] * rms).clamp_min(1e-30)
        step = 2.0 * top / 2**bits
        level = torch.floor(rows / step).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return ((level + 0.5) * step).view_as(received)

    def _heard(self, antennas: int, round: int) -> Tensor:
        """Draw the fading [S, J, A] of the interferers and, last, the jammer."""
        shape = (self.settings.interferers + 1, antennas, 2)
        draw = self.streams.draw_normal(INTERFERENCE, round, shape)
        return torch.view_as_complex(draw.contiguous()) * math.sqrt(0.5)

    def _spread(self, purpose: str, devices: int, round: int) -> Tensor:
        """Draw uniform numbers in (-1, 1), [S, K], for each device its own."""
        trials = len(self.clip)
        pair = torch.arange(trials * devices, device=self.clip.device)
        trial, device = pair // devices, pair % devices
        draw = self.streams.draw_device_uniform(purpose, round, trial, device, ())
        return 2.0 * draw.view(trials, devices) - 1.0


def refuse_distortion(scenario: Any, keys: Iterable[str], computes: str) -> Iterator[Problem]:
    """Yield what bends the signals of a transport that computes, say, counts and not waveforms.

    keys: impairments that it does without.
    """
    impairments = scenario.impairments
    for key in keys:
        if not impairments.is_default(key):
            yield make_problem(
                f"{getattr(impairments, key)} does not go with transport: "
                f"'{scenario.transport.name}', which computes {computes} and not waveforms; leave "
                f"{key} out, or transport: over_the_air",
                f"impairments.{key}",
                "transport",
            )
