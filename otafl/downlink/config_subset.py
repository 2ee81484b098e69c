"""Settings of a downlink that sends a random subset of the model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.core.settings import Settings


class RandomSubsetDownlinkConfig(Settings):
    """Each device gets a random subset of the broadcast's numbers, drawn anew for each device and
    round, without error; the others it takes for 0. The way down of FedAvg (s.a.r.), TDPFed's
    rival, of which codec random_subset is the way up. Sent to one device after the other."""

    name: Literal["random_subset"] = "random_subset"
    keep: float = Field(0.5, gt=0, le=1, description="share of the numbers that a device gets")
    positions: bool = Field(
        True,
        description="count the bits that tell which numbers are sent; not needed where both ends "
        "draw the same subset from a shared seed",
    )
