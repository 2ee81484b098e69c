"""Say what devices and server believe the channel to be (channel state information)."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.channels.base import Channel
from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.hyper import hyper_of
from otafl.core.rng import Streams
from otafl.core.settings import Settings
from otafl.csi.base import Csi


def build(
    sections: Sequence[Settings], channel: Channel, budget: LinkBudget, streams: Streams
) -> Csi:
    """Return what is known of a channel in S trials, of a section each, and tell the channel."""
    hyper = hyper_of(sections, streams)
    known: Csi = registry.make("csi", sections[0], channel, budget, streams, hyper)
    channel.believed = known.estimate_paths
    return known
