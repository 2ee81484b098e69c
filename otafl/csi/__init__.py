"""Channel state information: the channel as devices and server estimate it."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.channels.base import Channel
from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.core.settings import Settings
from otafl.csi.base import Csi


def build(
    sections: Sequence[Settings], channel: Channel, budget: LinkBudget, streams: Streams
) -> Csi:
    """Build the channel state information of S trials, and pass it to the channel.

    Parameters
    ----------
    sections : sequence of Settings [S]
        Settings of the trials, which differ only in stackable fields.
    channel : Channel
        The true channel, whose sounded paths are estimated too.
    budget : LinkBudget
        Power budgets of the devices.
    streams : Streams
        Random streams of the S trials.

    Returns
    -------
    Csi
        Channel estimates.
    """
    hyper = build_hyper(sections, streams)
    known: Csi = registry.make_component("csi", sections[0], channel, budget, streams, hyper)
    channel.estimate_fn = known.estimate_paths
    return known
