"""Combine the server's antennas into one, and scale what it receives."""

from __future__ import annotations

from otafl.power.base import PowerPolicy
from otafl.receivers.base import Receiver


def build(section: Receiver, policy: PowerPolicy, antennas: int) -> Receiver:
    """Return the receiver of a scenario's section, for a policy and so many antennas."""
    return section.match_policy(policy, antennas)
