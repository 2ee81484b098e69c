"""Say how devices' signals fade on the uplink, and with what power they arrive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otafl.channels.base import Channel, ChannelSettings, compute_link_budget
from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams


def build(
    sections: Sequence[ChannelSettings],
    devices: int,
    streams: Streams,
    power_db: np.ndarray | None = None,
) -> tuple[LinkBudget, Channel]:
    """Make the link budgets and the channel of a stack of S trials.

    Parameters
    ----------
    sections : S, which differ in stackable fields alone.
    devices : K.
    streams : of the S trials.
    power_db : [S, K] dB that devices' budgets are above the channel's.
    """
    budget = compute_link_budget(sections, devices, streams, power_db)
    hyper = build_hyper(sections, streams)
    return budget, registry.make_component("channel", sections[0], budget, devices, streams, hyper)
