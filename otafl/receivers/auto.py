"""What `receiver: auto` stands for."""

from __future__ import annotations

from otafl.receivers.config import ReceiverConfig


def chosen(config: ReceiverConfig, preferred: str, antennas: int) -> str:
    """The name of the receiver that a policy is made for, `preferred`; with one antenna only the
    sum of channels, which blind devices need, does anything."""
    return preferred if antennas > 1 or preferred == "mrc" else "scalar"
