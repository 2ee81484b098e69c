"""Downlinks, which carry the server's broadcast to the devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.core.settings import Settings
from otafl.downlink.base import Downlink, DownlinkSetup


def build(
    sections: Sequence[Settings], rate_bps: np.ndarray, budget: LinkBudget, streams: Streams
) -> Downlink:
    """Build the downlink of S trials.

    Parameters
    ----------
    sections : sequence of Settings [S]
        Settings of the trials, which differ only in stackable fields.
    rate_bps : ndarray [S]
        Bit rate of digital transmission.
    budget : LinkBudget
        Bandwidth of the channel.
    streams : Streams
        Random streams of the S trials.

    Returns
    -------
    Downlink
        The downlink.
    """
    setup = DownlinkSetup(rate_bps, budget, streams, build_hyper(sections, streams))
    downlink: Downlink = registry.make_component("downlink", sections[0], setup)
    return downlink
