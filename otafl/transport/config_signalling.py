"""Settings of what an uplink slot takes beside its payload."""

from __future__ import annotations

from pydantic import Field

from otafl.core.settings import Settings, stackable


class SignallingConfig(Settings):
    """Whether pilots, side information, synchronisation and feedback cost time and energy. By
    default they are counted in `side_symbols` and cost nothing else."""

    charge: bool = Field(
        False,
        description="charge them: the slot is longer by them at a channel use a second and hertz, "
        "and devices radiate their pilots and side information at full power",
    )
    sync_symbols: float = stackable(
        0.0, ge=0, description="channel uses of the server's synchronisation signal in a slot"
    )
    feedback_symbols: float = stackable(
        0.0,
        ge=0,
        description="channel uses of what the server tells each device that transmits in a slot: "
        "its grant, its precoder",
    )
