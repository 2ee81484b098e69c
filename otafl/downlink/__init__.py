"""Make the downlink, which takes the server's broadcast to the devices."""

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
    """Make the downlink of S trials, whose sections differ in stackable fields alone. rate_bps: [S]
    of what is sent digitally."""
    setup = DownlinkSetup(rate_bps, budget, streams, build_hyper(sections, streams))
    downlink: Downlink = registry.make_component("downlink", sections[0], setup)
    return downlink
