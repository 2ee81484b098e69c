"""Settings of the clock frequency of the local work."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from otafl.core.settings import Settings


class FullFrequencyConfig(Settings):
    """At the highest clock frequency."""

    name: Literal["full"] = "full"


class DeadlineFrequencyConfig(Settings):
    """At the slowest clock frequency at which local work is done by devices.deadline_s: a cycle at
    f costs kappa f^2 joules, so that is the cheapest (Tran et al. 2019, "Federated Learning over
    Wireless Networks: Optimization Model Design and Analysis"). A device that cannot make it runs
    at full speed."""

    name: Literal["deadline"] = "deadline"
    share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of devices.deadline_s by which local work is to be done; the rest is "
        "room for jitter",
    )


class JointFrequencyConfig(Settings):
    """Clock frequency and transmit power together, for the least energy of local work and digital
    uplink within devices.deadline_s (Yang et al. 2021, "Energy Efficient Federated Learning Over
    Wireless Communication Networks", with the band shared evenly). A device that cannot make it
    runs and transmits at full power."""

    name: Literal["joint"] = "joint"
    share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of devices.deadline_s by which local work and transmission are to be "
        "done",
    )
