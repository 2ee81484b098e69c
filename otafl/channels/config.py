"""Settings of channels and of channel state information.

The signal-to-noise ratio is said in one of two ways. Normalised: `snr_db` is the budget on the mean
symbol power over the receiver's complex noise variance, whatever the distance. Physical: with
`path_loss_db`, the ratio follows from `tx_power_dbm`, `bandwidth_hz` and `noise_figure_db`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from otafl.core.settings import Settings, stackable


class ChannelConfig(Settings):
    """What every channel's section may hold."""

    own_path_loss: ClassVar[bool] = False
    """The channel knows where devices are, and needs neither snr_db nor path_loss_db."""

    snr_db: float | None = stackable(
        None, description="normalised SNR in dB; 20 if neither it nor path_loss_db is given"
    )
    path_loss_db: float | None = stackable(
        None, ge=0, description="path loss in dB of every device; then the SNR is physical"
    )
    tx_power_dbm: float = stackable(
        20.0, description="transmit power budget of a device in dBm (0.1 W); joules follow from it"
    )
    bandwidth_hz: float = stackable(
        1e6, gt=0, description="uplink bandwidth; one symbol a second and hertz"
    )
    noise_figure_db: float = stackable(
        5.0, ge=0, description="receiver noise figure in dB over -174 dBm/Hz"
    )
    device_budget_db: tuple[float, ...] = Field(
        (),
        description="each device's power budget in dB relative to snr_db or tx_power_dbm; the list "
        "is repeated over the devices",
    )

    @model_validator(mode="after")
    def _one_snr(self) -> ChannelConfig:
        if self.snr_db is not None and self.path_loss_db is not None:
            raise ValueError(
                "snr_db and path_loss_db are two ways to say the same thing; give one of them"
            )
        return self

    @property
    def physical(self) -> bool:
        """Whether budgets are watts over thermal noise; else an SNR at gain 1."""
        return self.path_loss_db is not None or (self.own_path_loss and self.snr_db is None)


class AwgnConfig(ChannelConfig):
    """No fading: h = 1."""

    name: Literal["awgn"] = "awgn"
    antennas: int = Field(1, ge=1, description="antennas of the server, A; h = 1 at each")


class FadingConfig(ChannelConfig):
    """What the section of a channel that fades may hold."""

    antennas: int = Field(1, ge=1, description="antennas of the server, A")
    antenna_correlation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="correlation of neighbouring antennas; r^|a-b| at larger distance",
    )
    block_symbols: int | None = Field(
        None,
        ge=1,
        description="channel uses of a coherence block, all sub-carriers together; without it the "
        "channel lasts for the whole payload",
    )
    speed_kmh: float | None = Field(
        None,
        ge=0,
        description="speed of the devices: fading is correlated over blocks and rounds (Jakes); "
        "without it, it is independent",
    )
    carrier_hz: float = Field(3.5e9, gt=0, description="carrier frequency")
    round_interval_s: float = Field(
        1.0, gt=0, description="seconds between the payloads of two rounds, as the fading sees it"
    )


class RisConfig(Settings):
    """A reflecting surface: one more path, whose gain comes on top of E|h|^2 = 1."""

    elements: int = Field(ge=1, description="reflecting elements, M")
    reflected_db: float = Field(
        -20.0,
        description="power of one element's path, device to surface to server, relative to the "
        "direct path's, in dB",
    )
    blocked: float = Field(
        0.0, ge=0, le=1, description="share of the direct path's power that an obstacle takes"
    )
    rule: Literal["random", "align_weakest", "align_sum"] = Field(
        "align_weakest",
        description="phases: random, or set for the device of the weakest direct path, or for the "
        "sum of all devices' channels",
    )


class FlatFadingConfig(FadingConfig):
    """What the section of a flat channel that fades may hold."""

    ris: RisConfig | None = Field(None, description="a reflecting surface")


class RayleighConfig(FlatFadingConfig):
    """Flat Rayleigh block fading: h ~ CN(0, 1), independent over devices."""

    name: Literal["rayleigh"] = "rayleigh"


class RicianConfig(FlatFadingConfig):
    """Flat Rician block fading: a line of sight of fixed amplitude, and Rayleigh fading."""

    name: Literal["rician"] = "rician"
    k_factor_db: float = stackable(
        6.0, description="K-factor in dB: power of the line of sight over the scattered one"
    )


class PerfectCsiConfig(Settings):
    """Devices and server know h."""

    name: Literal["perfect"] = "perfect"


class ErrorCsiConfig(Settings):
    """They know h + e with e ~ CN(0, variance), independent over devices and rounds."""

    name: Literal["error"] = "error"
    variance: float = stackable(0.01, ge=0, description="variance of the estimation error")


class PilotsCsiConfig(Settings):
    """Estimates from pilots: each device sends its own in each coherence block, and they are
    counted as side information."""

    name: Literal["pilots"] = "pilots"
    estimator: Literal["ls", "mmse"] = Field(
        "ls",
        description="least squares, or least mean squared error with the mean power known, for "
        "each coherence block and sub-carrier group alone",
    )
    length: int = Field(
        1, ge=1, description="pilots on a sub-carrier group that carries them, in a block"
    )
    power_db: float = stackable(0.0, description="power of a pilot over the device's budget, in dB")
    comb: int = Field(
        1,
        ge=1,
        description="one sub-carrier group in so many carries pilots; the others' estimates are "
        "interpolated linearly",
    )

    @model_validator(mode="after")
    def _one_cell(self) -> PilotsCsiConfig:
        if self.estimator == "mmse" and self.comb > 1:
            raise ValueError(
                f"estimator: 'mmse' estimates each sub-carrier group by its own pilots, but comb "
                f"is {self.comb}; comb: 1 or estimator: ls would do"
            )
        return self


class PhaseFeedbackCsiConfig(Settings):
    """They know the amplitude, and the phase rounded to so many bits."""

    name: Literal["phase_feedback"] = "phase_feedback"
    bits: int = stackable(2, ge=1, le=16, description="bits of the phase, 2^bits levels")


class DelayCsiConfig(Settings):
    """They know the channel of some rounds ago; fading that is drawn anew in each round has nothing
    in common with it (set channel.speed_kmh)."""

    name: Literal["delay"] = "delay"
    rounds: int = Field(
        1, ge=1, description="rounds between estimate and use; the first ones use that of round 0"
    )
