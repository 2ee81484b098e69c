"""Combination of the server's antennas to one, and scaling of the received sum."""

from __future__ import annotations

from otafl.power.base import PowerPolicy
from otafl.receivers.base import Receiver


def build(section: Receiver, policy: PowerPolicy, antennas: int) -> Receiver:
    """Return the receiver of a scenario's section, for a policy and a number of antennas.

    Parameters
    ----------
    section : Receiver
        Section `receiver` of a scenario.
    policy : PowerPolicy
        Power policy of the scenario.
    antennas : int
        Number of antennas of the server, A.

    Returns
    -------
    Receiver
        The receiver; for `auto`, that of the policy.
    """
    return section.match_policy(policy, antennas)
