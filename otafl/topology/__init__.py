"""Topologies: the servers of a trial, their devices, and what servers exchange.

A server is a row: a stack of S trials with C servers each is computed as S C rows, trial by trial.
Each row has K devices, a model, a clock and random streams. The rows of a trial interact in three
ways: by inter-cell interference, at the clock, and in the exchange of the servers after a round.
"""

from __future__ import annotations

from otafl.core import registry
from otafl.core.hyper import build_hyper
from otafl.topology.base import Rows, Topology

__all__ = ["Rows", "build"]


def build(rows: Rows) -> Topology:
    """Build the topology of a stack's rows."""
    sections = [row.topology for row in rows.scenarios]
    hyper = build_hyper(sections, rows.streams)
    made: Topology = registry.make_component("topology", sections[0], rows, hyper)
    return made
