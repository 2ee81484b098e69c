"""Choose who takes part in a round; each file is a way to choose among the available devices."""

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
    """Make the selection of a stack, and say what it was built from.

    Parameters
    ----------
    sections : S settings of one class, the `devices.selection` of each trial.
    csi : what is believed of the channel, which is what the uplink believes.
    """
    setup = SelectionSetup(csi, budget, streams, build_hyper(sections, streams))
    return registry.make_component("selection", sections[0], setup), setup
