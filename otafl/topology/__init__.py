"""Topologies: the servers of a trial, their devices, and what servers exchange.

A server is a row: a stack of S trials with C servers each is computed as S C rows, trial by trial.
Each row has K devices, a model, a clock and random streams. The rows of a trial interact in three
ways: by inter-cell interference, at the clock, and in the exchange of the servers after a round.
"""

from __future__ import annotations

import numpy as np

from otafl import channels
from otafl.channels.base import Channel
from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.hyper import build_hyper
from otafl.topology.base import Rows, Topology

__all__ = ["Rows", "build", "build_links", "locate_devices"]

Links = tuple[Topology, LinkBudget, Channel]  # as `build_links` returns them


def build(rows: Rows) -> Topology:
    """Build the topology of a stack's rows."""
    sections = [row.topology for row in rows.scenarios]
    hyper = build_hyper(sections, rows.streams)
    made: Topology = registry.make_component("topology", sections[0], rows, hyper)
    return made


def build_links(rows: Rows) -> Links:
    """Build the topology of rows, with the link budgets and the channel of its devices."""
    servers, sections = build(rows), [row.channel for row in rows.scenarios]
    budget, own = channels.build(sections, rows.scenarios[0].devices.count, rows.streams)
    return servers, budget, servers.get_uplink_channel(own)


def locate_devices(rows: Rows, links: Links | None = None) -> list[np.ndarray] | None:
    """Locate the devices at the start, if the partition of the data needs their positions.

    Parameters
    ----------
    rows : Rows
        S trials with C servers each.
    links : Links, optional
        Those of the rows, which are built only if needed and not given.

    Returns
    -------
    list of ndarray [n, 2], optional
        Positions in metres of all devices of each trial; None if they are not needed, or if the
        channel has none.
    """
    if not rows.scenarios[0].data.partition.needs_positions:
        return None
    servers, _, channel = links or build_links(rows)
    places = [servers.get_positions(channel, 0, trial) for trial in range(rows.trials.num_trials)]
    found = [one.device_m for one in places if one is not None]
    return found if len(found) == len(places) else None
