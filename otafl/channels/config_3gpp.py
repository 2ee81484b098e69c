"""Settings of the channels of 3GPP TR 38.901 on an OFDM grid, and of replayed traces.

The band is split into groups of neighbouring sub-carriers; the response of a group is that at its
centre.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from otafl.channels.config import ChannelConfig, FadingConfig
from otafl.core.settings import stackable


class OfdmConfig(FadingConfig):
    """What the section of a frequency-selective channel may hold."""

    subcarrier_groups: int = Field(
        8,
        ge=1,
        description="groups of neighbouring sub-carriers that the band is split into, F; each is "
        "flat, with the response at its centre",
    )


class ProfileConfig(OfdmConfig):
    """A delay profile of TR 38.901 7.7, the same for all devices."""

    delay_spread_s: float = stackable(
        100e-9,
        ge=0,
        description="RMS delay spread in seconds, which the profile's delays are multiplied by; TR "
        "38.901 Table 7.7.3-1: 10 ns very short, 100 ns nominal, 1000 ns very long",
    )


class TdlConfig(ProfileConfig):
    """A tapped delay line of TR 38.901 7.7.2."""

    sinusoids: int = Field(
        20,
        ge=8,
        description="sinusoids of a tap of moving devices (speed_kmh), as many as Sionna's default",
    )


class TdlAConfig(TdlConfig):
    """TDL-A: 23 taps without line of sight."""

    name: Literal["tdl-a"] = "tdl-a"


class TdlBConfig(TdlConfig):
    """TDL-B: 23 taps without line of sight."""

    name: Literal["tdl-b"] = "tdl-b"


class TdlCConfig(TdlConfig):
    """TDL-C: 24 taps without line of sight."""

    name: Literal["tdl-c"] = "tdl-c"


class TdlDConfig(TdlConfig):
    """TDL-D: 13 taps, the first with line of sight (K of 13.3 dB)."""

    name: Literal["tdl-d"] = "tdl-d"


class TdlEConfig(TdlConfig):
    """TDL-E: 14 taps, the first with line of sight (K of 22 dB)."""

    name: Literal["tdl-e"] = "tdl-e"


class _GeometricConfig(OfdmConfig):
    """A channel whose antennas are correlated by the angles of its rays."""

    @model_validator(mode="after")
    def _no_correlation(self) -> _GeometricConfig:
        if self.antenna_correlation:
            raise ValueError(
                f"antenna_correlation {self.antenna_correlation:g} has no meaning here: the "
                "correlation of antennas follows from the angles of arrival; leave it out"
            )
        return self


class CdlConfig(_GeometricConfig, ProfileConfig):
    """A clustered delay line of TR 38.901 7.7.1. The server's antennas are a horizontal line at
    half a wavelength; a device has one. All are vertical and omnidirectional."""

    sector_deg: float = Field(
        120.0,
        ge=0,
        le=360,
        description="sector in degrees over which the devices' bearings from the server are "
        "spread evenly at random; 0: all see the angles of the profile",
    )


class CdlAConfig(CdlConfig):
    """CDL-A: 23 clusters without line of sight."""

    name: Literal["cdl-a"] = "cdl-a"


class CdlBConfig(CdlConfig):
    """CDL-B: 23 clusters without line of sight."""

    name: Literal["cdl-b"] = "cdl-b"


class CdlCConfig(CdlConfig):
    """CDL-C: 24 clusters without line of sight."""

    name: Literal["cdl-c"] = "cdl-c"


class CdlDConfig(CdlConfig):
    """CDL-D: 13 clusters and a line of sight (K of 13.3 dB over the first cluster)."""

    name: Literal["cdl-d"] = "cdl-d"


class CdlEConfig(CdlConfig):
    """CDL-E: 14 clusters and a line of sight (K of 22 dB over the first cluster)."""

    name: Literal["cdl-e"] = "cdl-e"


class CellConfig(_GeometricConfig):
    """A cell with dropped devices, TR 38.901 7.2 to 7.5: path loss, shadowing, line of sight,
    indoor loss. Without `snr_db`, budgets are `tx_power_dbm` over thermal noise; with it, they are
    the SNR at the trial's mean gain. Antennas as in the CDL profiles."""

    own_path_loss: ClassVar[bool] = True

    cell_radius_m: float = Field(gt=0, description="radius in metres of the disc around the server")
    min_distance_m: float = Field(gt=0, description="least horizontal distance of a device, metres")
    server_height_m: float = Field(gt=0, description="height of the server's antennas in metres")
    device_height_m: float = Field(
        1.5,
        ge=1.5,
        le=10,
        description="height of the devices in metres, all the same as in Sionna's topologies",
    )
    indoor_probability: float = Field(ge=0, le=1, description="share of devices that are indoors")
    o2i_loss: Literal["low", "high"] = Field(
        "low",
        description="building penetration loss (TR 38.901 7.4.3); below 6 GHz the same in umi and "
        "uma",
    )
    shadowing: bool = Field(True, description="whether shadow fading is part of the gain")
    mobility: Literal["none", "linear"] = Field(
        "none",
        description="linear: devices walk straight on at speed_kmh and are reflected at the edge "
        "of the cell, and distance, path loss and shadowing follow; none: speed_kmh is seen by the "
        "fading alone",
    )

    @model_validator(mode="after")
    def _a_cell(self) -> CellConfig:
        if self.path_loss_db is not None:
            raise ValueError(
                f"path_loss_db {self.path_loss_db:g}: the cell has a path loss of its own; leave "
                "it out, or give snr_db for a mean SNR"
            )
        if self.min_distance_m >= self.cell_radius_m:
            raise ValueError(
                f"min_distance_m {self.min_distance_m:g} leaves no room in cell_radius_m "
                f"{self.cell_radius_m:g}; a smaller one would do"
            )
        if self.mobility == "linear" and self.speed_kmh is None:
            raise ValueError("mobility 'linear' needs speed_kmh, say 3")
        return self


class UmiConfig(CellConfig):
    """Urban microcell, street canyon; half of an inter-site distance of 200 m."""

    name: Literal["umi"] = "umi"
    cell_radius_m: float = Field(
        100.0, gt=0, description="radius in metres of the disc around the server"
    )
    min_distance_m: float = Field(
        10.0, gt=0, description="least horizontal distance of a device, metres"
    )
    server_height_m: float = Field(
        10.0, gt=0, description="height of the server's antennas in metres"
    )
    indoor_probability: float = Field(
        0.8, ge=0, le=1, description="share of devices that are indoors"
    )


class UmaConfig(CellConfig):
    """Urban macrocell; half of an inter-site distance of 500 m."""

    name: Literal["uma"] = "uma"
    cell_radius_m: float = Field(
        250.0, gt=0, description="radius in metres of the disc around the server"
    )
    min_distance_m: float = Field(
        35.0, gt=0, description="least horizontal distance of a device, metres"
    )
    server_height_m: float = Field(
        25.0, gt=0, description="height of the server's antennas in metres"
    )
    indoor_probability: float = Field(
        0.8, ge=0, le=1, description="share of devices that are indoors"
    )


class RmaConfig(CellConfig):
    """Rural macrocell; half of an inter-site distance of 5 km."""

    name: Literal["rma"] = "rma"
    cell_radius_m: float = Field(
        2500.0, gt=0, description="radius in metres of the disc around the server"
    )
    min_distance_m: float = Field(
        35.0, gt=0, description="least horizontal distance of a device, metres"
    )
    server_height_m: float = Field(
        35.0, gt=0, description="height of the server's antennas in metres"
    )
    indoor_probability: float = Field(
        0.5, ge=0, le=1, description="share of devices that are indoors"
    )
    in_car: bool = Field(
        True,
        description="whether devices that are not indoors are in cars, N(9 dB, 5 dB) down (TR "
        "38.901 Table 7.2-3)",
    )

    @model_validator(mode="after")
    def _low_loss_alone(self) -> RmaConfig:
        if self.o2i_loss != "low":
            raise ValueError(
                "o2i_loss 'high' is not defined for rma (TR 38.901 7.4.3); low would do"
            )
        return self


class TraceConfig(ChannelConfig):
    """Replay of a file of impulse or frequency responses; its schema is in
    `otafl.channels.trace`."""

    name: Literal["trace"] = "trace"
    path: str = Field(
        min_length=1,
        description="NetCDF-4 or HDF5 file; relative paths count from the working directory",
    )
    start: Literal["zero", "per_trial"] = Field(
        "per_trial",
        description="zero: round 0 is the file's first round; per_trial: each trial starts at a "
        "random round of the file. Past its last round the file starts again",
    )
    gains: Literal["relative", "absolute"] = Field(
        "relative",
        description="relative: the file's gains over their mean, so that snr_db is the mean SNR; "
        "absolute: they are path gains, and budgets are tx_power_dbm over thermal noise",
    )
    subcarrier_groups: int | None = Field(
        None,
        ge=1,
        description="groups of sub-carriers over bandwidth_hz that impulse responses are evaluated "
        "on (default 1); frequency responses have their own",
    )
    block_symbols: int | None = Field(
        None,
        ge=1,
        description="channel uses of a coherence block; the blocks of a payload then take the "
        "file's rounds from its own on. Without it, the channel lasts for the whole payload",
    )

    @model_validator(mode="after")
    def _one_gain(self) -> TraceConfig:
        given = next(
            (key for key in ("snr_db", "path_loss_db") if getattr(self, key) is not None), ""
        )
        if self.gains == "absolute" and given:
            raise ValueError(
                f"gains 'absolute' takes the path loss from the file; leave {given} out, or set "
                "gains to relative"
            )
        return self

    @property
    def physical(self) -> bool:
        return self.gains == "absolute" or super().physical
