"""Settings of channels and of channel state information.

The signal-to-noise ratio is said in one of two ways. Normalised: `snr_db` is the budget on the mean
symbol power over the receiver's complex noise variance, whatever the distance. Physical: with
`path_loss_db`, the ratio follows from `tx_power_dbm`, `bandwidth_hz` and `noise_figure_db`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from otafl.config import Config, stackable


class ChannelConfig(Config):
    """What every channel's section may hold."""

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

    @model_validator(mode="after")
    def _one_snr(self) -> ChannelConfig:
        if self.snr_db is not None and self.path_loss_db is not None:
            raise ValueError(
                "snr_db and path_loss_db are two ways to say the same thing; give one of them"
            )
        return self


class AwgnConfig(ChannelConfig):
    """No fading: h = 1."""

    name: Literal["awgn"] = "awgn"


class RayleighConfig(ChannelConfig):
    """Flat Rayleigh block fading: h ~ CN(0, 1), independent over devices and rounds."""

    name: Literal["rayleigh"] = "rayleigh"


class PerfectCsiConfig(Config):
    """Devices and server know h."""

    name: Literal["perfect"] = "perfect"


class ErrorCsiConfig(Config):
    """They know h + e with e ~ CN(0, variance), independent over devices and rounds."""

    name: Literal["error"] = "error"
    variance: float = stackable(0.01, ge=0, description="variance of the estimation error")
