"""Settings of transports. `gives` says what the receiver gets: the mean of the updates, or
each of them too."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings, stackable
from otafl.transport.mcs import MCS_TABLES


class IdealConfig(Settings):
    """Error-free and undistorted; symbols and airtime are charged as for one over-the-air slot."""

    gives: ClassVar[frozenset[str]] = frozenset({"mean", "each"})

    name: Literal["ideal"] = "ideal"


class OverTheAirConfig(Settings):
    """All devices transmit at once on the same symbols; the receiver gets their superposition and
    one noise."""

    gives: ClassVar[frozenset[str]] = frozenset({"mean"})

    name: Literal["over_the_air"] = "over_the_air"
    normalise: Literal["payload", "block"] = Field(
        "payload",
        description="one transmit scalar for a device's whole payload, or one for each block; the "
        "mean symbol powers it depends on are side information and counted",
    )
    snr_convention: Literal["per_symbol", "total_energy"] = Field(
        "per_symbol",
        description="the power budget bounds the mean power of a symbol, or the energy of the "
        "whole payload (FedRLR's literal definition)",
    )
    quadrature: bool = Field(
        False, description="two reals a symbol, one on each quadrature carrier, in place of one"
    )
    centre: bool = Field(
        False,
        description="each device sends deviations from the mean of its normalised stretch; the "
        "means are side information. Payloads of which devices know different parts go as they are",
    )

    @model_validator(mode="after")
    def _one_stretch(self) -> OverTheAirConfig:
        if self.quadrature and self.normalise == "block":
            raise ValueError(
                "quadrature pairs reals of the whole payload; normalise: payload goes with it"
            )
        return self


class ImpairmentsConfig(Settings):
    """What goes wrong on an over-the-air uplink beside noise and fading; all off by default. What
    is drawn is drawn for each device and round."""

    residual_phase_rad: float = stackable(
        0.0,
        ge=0,
        le=math.pi,
        description="phase left after pre-compensation, uniform in plus or minus this",
    )
    carrier_offset: float = stackable(
        0.0,
        ge=0,
        le=0.5,
        description="carrier frequency offset in cycles a symbol, uniform in plus or minus this",
    )
    timing_offset: float = stackable(
        0.0,
        ge=0,
        lt=1,
        description="delay in symbols, uniform from 0 to this, of rectangular pulses",
    )
    timing_receiver: Literal["matched_filter", "aligned_sample", "lmmse"] = Field(
        "matched_filter",
        description="estimator of a sum of misaligned symbols: a filter matched to the first "
        "device's symbols, the sample in which all overlap, or linear MMSE on all samples (Shao, "
        "Gunduz, Liew 2021)",
    )
    clip_db: float | None = stackable(
        None,
        description="peak power of a transmitter over its budget on the mean, in dB; larger "
        "symbols are clipped",
    )
    adc_bits: int | None = Field(
        None, ge=1, le=16, description="bits of the server's analogue-to-digital converter"
    )
    adc_range: float = stackable(
        3.0, gt=0, description="full scale of the converter over the received root mean square"
    )
    interference_db: float | None = stackable(
        None,
        description="interference of neighbouring cells over the noise, in dB, each interferer's "
        "mean; the server knows the mean, not the interferers' fading",
    )
    interferers: int = Field(3, ge=1, description="devices of neighbouring cells that are heard")

    @property
    def bends(self) -> bool:
        """Whether gains change from symbol to symbol, or symbols are not only scaled."""
        return bool(
            self.carrier_offset or self.timing_offset or self.clip_db is not None or self.adc_bits
        )


class IdealDownlinkConfig(Settings):
    """The broadcast arrives without error; its bits and time are charged at
    devices.downlink_rate_bps."""

    name: Literal["ideal"] = "ideal"


class AnalogDownlinkConfig(Settings):
    """The server broadcasts the model's numbers uncoded, one a symbol in channel.bandwidth_hz, and
    each device hears them with a noise of its own."""

    name: Literal["analog"] = "analog"
    snr_db: float = stackable(
        20.0,
        description="mean power of a broadcast symbol over the complex noise variance at a device, "
        "in dB, the same for all devices but for fading",
    )
    fading: bool = Field(
        False, description="Rayleigh fading of the downlink, known to the devices; else none"
    )
    estimator: Literal["inversion", "mmse"] = Field(
        "inversion",
        description="a device divides by its channel, which a deep fade makes very noisy, or "
        "shrinks towards zero for the least mean squared error",
    )


class DigitalConfig(Settings):
    """Orthogonal access: every device has channel uses of its own, at full power, and its update
    arrives whole or, where its rate was above what its channel carries, not at all.

    By default devices take turns at the Shannon rate of their channel, free of error. The SNR is
    that after maximum-ratio combining of the server's antennas, and the rate is the mean over
    sub-carriers and over the coherence blocks that so many channel uses last as the payload has
    reals. Neither the receiver nor the power policy plays a part.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"mean", "each"})

    name: Literal["digital"] = "digital"
    access: Literal["tdma", "ofdma"] = Field(
        "tdma",
        description="devices take turns on the whole band, or all n that send have a share 1/n of "
        "it at the same time: with the same power in it the SNR is n times higher, and the slot "
        "lasts as long as the slowest needs",
    )
    rate: Literal["shannon", "mcs"] = Field(
        "shannon",
        description="log2(1 + SNR) bits a channel use, or the modulation and coding schemes of "
        "3GPP TS 38.214",
    )
    rate_factor: float = stackable(
        1.0, gt=0, le=1, description="share of the Shannon rate that is reached"
    )
    snr_gap_db: float = stackable(
        0.0, ge=0, description="implementation gap: the SNR counts as so much lower"
    )
    margin_db: float = stackable(
        0.0,
        ge=0,
        description="devices choose their rate as if the SNR that they believe in were so much "
        "lower, which leaves room for errors of the estimate",
    )
    outage: bool = Field(
        True,
        description="a rate chosen by the estimate that is above what the true channel carries "
        "loses the update (never with perfect CSI and rate shannon); false: retransmissions reach "
        "the rate of the true channel, and nothing is lost",
    )
    mcs_table: Literal["64qam", "256qam"] = Field(
        "64qam", description="table 5.1.3.1-1 or 5.1.3.1-2 of TS 38.214"
    )
    mcs_index: int | None = Field(
        None,
        ge=0,
        description="scheme of all devices; without it each takes the fastest that its estimate "
        "supports, and is silent if it supports none",
    )
    coding: Literal["ideal", "ldpc"] = Field(
        "ideal",
        description="codes that just reach the rate, or the payload's real bits through 5G LDPC, "
        "QAM and noise at the SNR of the device (slow; needs rate mcs and codec uniform or qsgd)",
    )
    on_block_error: Literal["drop", "keep"] = Field(
        "drop",
        description="what a wrong LDPC block does: the update is lost, or its bits are taken as "
        "they are; ranges and norms beside the words arrive right",
    )
    max_symbols: float = stackable(
        0.0,
        ge=0,
        description="channel uses of the whole band that a round may take, shared evenly by the "
        "devices that have something to send; 0 for no bound. Over the air takes one for each real "
        "of a payload, or half with quadrature; a second has as many as bandwidth_hz",
    )
    over_budget: Literal["drop", "quantise"] = Field(
        "drop",
        description="a device whose bits do not fit its share of max_symbols is silent; or each "
        "sends with as many whole bits a real (1 to 16, in place of the codec's) as fit, rounded "
        "stochastically between each block's extremes",
    )

    @model_validator(mode="after")
    def _consistent(self) -> DigitalConfig:
        if self.mcs_index is not None:
            most = len(MCS_TABLES[self.mcs_table]) - 1
            if self.rate != "mcs":
                raise ValueError(f"mcs_index ({self.mcs_index}) needs rate: mcs")
            if self.mcs_index > most:
                raise ValueError(
                    f"mcs_index: got {self.mcs_index}, but table {self.mcs_table} ends at {most}"
                )
        if self.coding == "ldpc":
            if self.rate != "mcs":
                raise ValueError(
                    "coding: 'ldpc' takes its modulation and code rate from a scheme; set rate: mcs"
                )
            if not self.outage:
                raise ValueError("outage: false needs coding: ideal; LDPC blocks fail or do not")
            if self.over_budget == "quantise":
                raise ValueError("over_budget: 'quantise' needs coding: ideal")
        elif self.on_block_error == "keep":
            raise ValueError("on_block_error: 'keep' needs coding: ldpc")
        if self.over_budget == "quantise" and not self.max_symbols:
            raise ValueError("over_budget: 'quantise' needs max_symbols, the bound to fit into")
        return self
