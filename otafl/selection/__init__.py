"""Selections: which of the available devices take part in a round."""

from __future__ import annotations

from collections.abc import Sequence

from otafl.core import registry
from otafl.core.contracts import LinkBudget
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.core.settings import Settings
from otafl.csi.base import Csi
from otafl.selection.base import Selection, SelectionSetup


def build(
    sections: Sequence[Settings], csi: Csi, budget: LinkBudget, streams: Streams
) -> tuple[Selection, SelectionSetup]:
    """Make the selection of a stack.

    Parameters
    ----------
    sections : sequence of Settings
        Section `devices.selection` of each of the S trials, of one class.
    csi : Csi
        Estimates of the channel, the same as those of the uplink.
    budget : LinkBudget
        Power budgets.
    streams : Streams
        Source of random numbers.

    Returns
    -------
    Selection
        The selection.
    SelectionSetup
        Its arguments.
    """
    setup = SelectionSetup(csi, budget, streams, build_hyper(sections, streams))
    return registry.make_component("selection", sections[0], setup), setup
