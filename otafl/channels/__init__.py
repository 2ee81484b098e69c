"""Radio channels of the uplink: fading, large-scale gains and link budgets."""

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
    """Build the link budgets and the channel of S trials.

    Parameters
    ----------
    sections : sequence of ChannelSettings [S]
        Settings of the trials, which differ only in stackable fields.
    devices : int
        Number of devices, K.
    streams : Streams
        Random streams of the S trials.
    power_db : ndarray [S, K], optional
        Power budgets of the devices relative to the channel's, in dB.

    Returns
    -------
    tuple of LinkBudget and Channel
        Budgets, and the channel.
    """
    budget = compute_link_budget(sections, devices, streams, power_db)
    hyper = build_hyper(sections, streams)
    return budget, registry.make_component("channel", sections[0], budget, devices, streams, hyper)
