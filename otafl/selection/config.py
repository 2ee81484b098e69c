"""Settings of device selection: which of the available devices take part in a round."""

from __future__ import annotations

from typing import Literal

from otafl.core.settings import Settings, stackable


class UniformSelectionConfig(Settings):
    """Uniformly, without replacement."""

    name: Literal["uniform"] = "uniform"


class RoundRobinSelectionConfig(Settings):
    """In turn: those who have waited longest."""

    name: Literal["round_robin"] = "round_robin"


class BestChannelSelectionConfig(Settings):
    """The largest estimated channel gains, path loss included."""

    name: Literal["best_channel"] = "best_channel"


class ProportionalFairSelectionConfig(Settings):
    """The largest rates relative to what each device has had on average."""

    name: Literal["proportional_fair"] = "proportional_fair"
    window: float = stackable(
        100.0, ge=1, description="rounds over which a device's rate is averaged, t_c"
    )


class ThresholdSelectionConfig(Settings):
    """All devices that are heard well enough; if devices.participants is given, uniformly so many
    of them at most."""

    name: Literal["threshold"] = "threshold"
    min_snr_db: float = stackable(
        10.0,
        description="least estimated SNR at full power, budget times channel gain, in dB",
    )


class UpdateNormSelectionConfig(Settings):
    """All available devices train, those with the largest updates send them."""

    name: Literal["update_norm"] = "update_norm"
