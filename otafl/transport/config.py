"""Settings of uplink transports. `gives` says what the receiver gets: the mean of the updates, or
each of them too."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from otafl.config import Config, stackable


class IdealConfig(Config):
    """Error-free and undistorted; symbols and airtime are charged as for one over-the-air slot."""

    gives: ClassVar[frozenset[str]] = frozenset({"mean", "each"})

    name: Literal["ideal"] = "ideal"


class OverTheAirConfig(Config):
    """All devices transmit at once on the same symbols; the receiver gets their superposition and
    one noise. One real number a symbol (the imaginary part stays empty)."""

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


class DigitalConfig(Config):
    """Orthogonal access (TDMA) at the Shannon rate of each device's channel, error-free."""

    gives: ClassVar[frozenset[str]] = frozenset({"mean", "each"})

    name: Literal["digital"] = "digital"
    rate_factor: float = stackable(
        1.0, gt=0, le=1, description="share of the Shannon rate that is reached"
    )
