"""Settings of a digital downlink with losses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.core.settings import Settings, stackable


class DigitalDownlinkConfig(Settings):
    """Packets of 32 bits a number, to all devices at once or to one after the other, which may be
    lost and are then sent again.

    A device that has not got its copy after the last attempt sits the round out. A lost packet is
    known at once and at no cost. Models that are not the same for all devices go to one device
    after the other whatever the mode.
    """

    name: Literal["digital"] = "digital"
    mode: Literal["broadcast", "unicast"] = Field(
        "broadcast",
        description="one packet for all who take part, sent again to all as long as one of them "
        "misses it; or a packet to each in turn",
    )
    rate: Literal["given", "outage", "channel"] = Field(
        "given",
        description="devices.downlink_rate_bps; or that of a channel of channel.bandwidth_hz with "
        "Rayleigh fading, anew in each attempt: the rate that fails with probability `outage` of a "
        "server that does not know the channels, or what the device's channel carries, in a "
        "broadcast the weakest of those who still miss it",
    )
    snr_db: float = stackable(
        20.0,
        description="mean power of a symbol over the complex noise variance at a device, in dB, "
        "the same for all devices but for fading; of rates outage and channel",
    )
    outage: float = stackable(
        0.1, gt=0, lt=1, description="probability that a channel does not carry the rate outage"
    )
    loss: float = stackable(
        0.0,
        ge=0,
        lt=1,
        description="probability that a device loses a copy whatever its channel, independent over "
        "devices and attempts",
    )
    attempts: int = Field(1, ge=1, le=64, description="most transmissions of a packet")
