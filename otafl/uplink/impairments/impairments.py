"""Impairments of an over-the-air uplink besides noise and fading, drawn in `otafl.uplink.noise`.

They are residual phases, interference and jamming, and distortion of a device's signal within a
payload: carrier offsets, timing offsets and clipped peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from otafl.core import registry, settings
from otafl.core.contracts import NOISE_VARIANCE
from otafl.core.hyper import build_hyper
from otafl.core.problems import Problem, make_problem
from otafl.core.rng import Streams
from otafl.core.settings import Decibels, declare_stackable
from otafl.core.units import db_to_linear


class Impairments:
    """Impairments of S trials.

    Parameters
    ----------
    sections : sequence of Settings [S]
        Settings of the trials, which differ only in stackable fields.
    jammer : Tensor, float [S], or None
        Power of a jammer over the noise; None without one.
    streams : Streams
        Random streams of the S trials.
    snr_growth : sequence of float [S] or [1]
        Power of the round by which the SNR grows, one for all trials or each its own; 0 by default.

    Attributes
    ----------
    settings : Settings
        Settings that all trials share.
    residual_phase : Tensor, float [S]
        Largest residual phase in radians.
    carrier_offset : Tensor, float [S]
        Largest carrier frequency offset in cycles per symbol.
    timing_offset : Tensor, float [S]
        Largest delay in symbols.
    clip : Tensor, float [S]
        Peak power over the budget on the mean, linear; inf without clipping.
    interference, jammer : Tensor, float [S]
        Power of each interferer, and of the jammer, over the noise, linear.
    adc_range : Tensor, float [S]
        Full scale of the converter over the received root mean square.
    tail_scale, tail_index : Tensor, float [S]
        Scale and tail index of heavy-tailed interference on a received real number.
    heavy : bool
        Whether interference is heavy-tailed; `interference` is then 0.
    known_noise : Tensor, float [S]
        Noise variance N plus mean interference, as the server expects it.
    grows : bool
        Whether the SNR of any trial grows from round to round.
    rotates_phase, delays, shifts_carrier, clips : bool
        Whether any trial has residual phases, delays, carrier offsets, or clipped peaks.
    is_nonlinear : bool
        Whether symbols of any trial are not only scaled and received.
    adds_noise : bool
        Whether any trial has interferers or a jammer.
    """

    class Settings(settings.Settings):
        """Section `impairments`: deviations of an over-the-air uplink besides noise and fading.

        All are off by default. Random ones are drawn for each device and round.
        """

        idle_without: ClassVar = {
            "adc_range": "adc_bits",
            "interferers": "interference_db",
            "tail_index": "interference",
        }

        residual_phase_rad: float = declare_stackable(0.0, ge=0, le=math.pi)
        """residual phase after pre-compensation, uniform between minus and plus this, in radians;
        none by default"""
        carrier_offset: float = declare_stackable(0.0, ge=0, le=0.5)
        """carrier frequency offset in cycles per symbol, uniform between minus and plus this; none
        by default"""
        timing_offset: float = declare_stackable(0.0, ge=0, lt=1)
        """delay of rectangular pulses in symbols, uniform between 0 and this; the receiver's filter
        is matched to the first device's symbols (Shao, Gunduz, Liew 2021). None by default"""
        clip_db: Decibels | None = declare_stackable(None)
        """peak power of a transmitter over its budget on the mean power, in dB, above which symbols
        are clipped; no clipping by default"""
        adc_bits: int | None = Field(None, ge=1, le=16)
        """bits of the server's analogue-to-digital converter; no quantisation by default"""
        adc_range: float = declare_stackable(3.0, gt=0, le=1e30)
        """full scale of the converter over the received root mean square"""
        interference: Literal["gaussian", "alpha_stable"] = "gaussian"
        """distribution of interference: interferers with independent Rayleigh fading and white
        normal symbols (gaussian), or an independent symmetric alpha-stable number on each received
        real number (Yang, Chen, Quek, Poor 2022), whose scale the server does not know
        (alpha_stable). Squared errors then have no mean; report medians"""
        interference_db: Decibels | None = declare_stackable(None)
        """mean power of each interferer over the noise, in dB; the server knows this mean, not the
        interferers' fading. For alpha_stable it is 2 s^2 over the noise, with the scale s, which is
        the power at tail_index 2. No interference by default"""
        tail_index: float = declare_stackable(1.5, gt=1, le=2)
        """alpha of alpha_stable interference; a lower one has heavier tails, and 2 is the normal
        distribution"""
        interferers: int = Field(3, ge=1)
        """number of interferers, devices of neighbouring cells"""

        def find_conflicts(self) -> Iterator[str]:
            if self.interference == "gaussian":
                return
            if self.interference_db is None:
                yield "interference: 'alpha_stable' needs interference_db; set it, e.g. to 0"
            if not self.is_default("interferers"):
                yield (
                    f"interferers: got {self.interferers}, but alpha_stable interference is the "
                    "sum of all interferers; leave it out, or set interference: gaussian"
                )

        def check(self, scenario: Any) -> Iterable[Problem]:
            transport = registry.load_component("transport", scenario.transport.name)
            if self.interference == "alpha_stable" and not transport.supports_heavy_tails:
                yield make_problem(
                    "'alpha_stable' needs a transport of analogue symbols, got "
                    f"'{scenario.transport.name}'; use transport: over_the_air",
                    "impairments.interference",
                    "transport.name",
                )

    def __init__(
        self,
        sections: Sequence[Settings],
        jammer: Tensor | None,
        streams: Streams,
        snr_growth: Sequence[float] = (0.0,),
    ) -> None:
        hyper = build_hyper(sections, streams)
        self.settings, self.streams = sections[0], streams
        self.residual_phase = hyper["residual_phase_rad"]
        self.carrier_offset, self.timing_offset = hyper["carrier_offset"], hyper["timing_offset"]
        zeros = torch.zeros_like(self.residual_phase)
        self.clip = db_to_linear(hyper["clip_db"]) if "clip_db" in hyper else zeros + math.inf
        power = db_to_linear(hyper["interference_db"]) if "interference_db" in hyper else zeros
        self.heavy = self.settings.interference == "alpha_stable"
        self.interference = zeros if self.heavy else power
        self.tail_scale = (0.5 * NOISE_VARIANCE * power).sqrt()
        self.tail_index, self.adc_range = hyper["tail_index"], hyper["adc_range"]
        self.jammer = zeros if jammer is None else jammer
        self.snr_growth = zeros + zeros.new_tensor(snr_growth)
        self.grows = bool(self.snr_growth.any())
        self.known_noise = NOISE_VARIANCE * (1.0 + self.settings.interferers * self.interference)
        self.rotates_phase = bool(self.residual_phase.any())
        self.delays = bool(self.timing_offset.any())
        self.shifts_carrier = bool(self.carrier_offset.any())
        self.clips = bool(self.clip.isfinite().any())
        self.adds_noise = bool(self.interference.any() or self.jammer.any())
        self.is_nonlinear = self.delays or self.shifts_carrier or self.clips

    def compute_noise_share(self, round: int) -> Tensor:
        """Compute the receiver's noise in a round over that of the first, (t + 1)^-growth, [S]."""
        return (self.snr_growth * -math.log1p(round)).exp()

    def compute_known_noise(self, round: int) -> Tensor:
        """Compute the noise variance of a received real that the server expects in a round, [S]."""
        if not self.grows:
            return self.known_noise
        return self.known_noise + NOISE_VARIANCE * (self.compute_noise_share(round) - 1.0)

    def quantise(self, received: Tensor) -> Tensor:
        """Quantise received real numbers [S, ...] by the server's converter.

        It is uniform and mid-rise. Its full scale is `adc_range` root mean squares of each trial's
        payload.
        """
        bits = self.settings.adc_bits
        assert bits is not None
        rows = received.flatten(1)
        rms = torch.linalg.vector_norm(rows, dim=1, keepdim=True) / math.sqrt(rows.shape[1])
        top = (self.adc_range[:, None] * rms).clamp_min(1e-30)
        step = 2.0 * top / 2**bits
        level = torch.floor(rows / step).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return ((level + 0.5) * step).view_as(received)


def refuse_distortion(scenario: Any, keys: Iterable[str], computes: str) -> Iterator[Problem]:
    """Yield the distortions that a transport without waveforms does not support.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    keys : iterable of str
        Impairments that the transport does not support.
    computes : str
        What the transport computes with, such as "counts".

    Yields
    ------
    Problem
        One for each such impairment of the scenario.
    """
    impairments = scenario.impairments
    for key in keys:
        if not impairments.is_default(key):
            yield make_problem(
                f"{getattr(impairments, key)} does not go with transport: "
                f"'{scenario.transport.name}', which computes {computes} and not waveforms; leave "
                f"{key} out, or use transport: over_the_air",
                f"impairments.{key}",
                "transport",
            )
