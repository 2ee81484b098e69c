"""Say what devices and server believe the channel to be (channel state information)."""

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
    """Return what is known of a channel in S trials, of a section each, and tell the channel."""
    hyper = build_hyper(sections, streams)
    known: Csi = registry.make_component("csi", sections[0], channel, budget, streams, hyper)
    channel.estimate_fn = known.estimate_paths
    return known
