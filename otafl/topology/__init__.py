"""Say how many servers there are, who hears whose devices, and what servers tell each other.

A server is a row: a stack of S trials with C servers each is computed as S C rows, trial by trial,
each with K devices, a model, a clock and random streams of its own. What is new are the few places
where rows of one trial meet: in the air (`transport.neighbours`), at the clock, and in what servers
exchange after a round.
"""

from __future__ import annotations

from otafl.core import registry
from otafl.core.hyper import build_hyper
from otafl.topology.base import Topology
from otafl.topology.rows import Rows

__all__ = ["Rows", "build"]


def build(rows: Rows) -> Topology:
    """Make the topology of a stack's rows."""
    sections = [row.topology for row in rows.scenarios]
    hyper = build_hyper(sections, rows.streams)
    made: Topology = registry.make_component("topology", sections[0], rows, hyper)
    return made
