"""By update norm: all available devices train and report the norm of what they would send, and
those with the largest send it. Amiri, Gunduz, Kulkarni, Poor 2021, "Convergence of Update Aware
Device Scheduling for Federated Learning at the Wireless Edge" (BN2). A report is one real number,
a symbol of side information. The update of a device that is not chosen is dropped, before its codec
has seen it; one that is chosen and misses the slot is late like any other.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort, Payload
from otafl.selection.choosing import SelectionSetup
from otafl.selection.config import UpdateNormSelectionConfig


class UpdateNorm:
    narrows: ClassVar[bool] = False

    def __init__(self, config: UpdateNormSelectionConfig, setup: SelectionSetup) -> None:
        pass

    def choose(
        self, free: np.ndarray, wanted: np.ndarray | int, round: int, state: ChannelState
    ) -> np.ndarray:
        return free

    def senders(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor:
        cells = cohort.trials * cohort.population
        norms = cohort.weight.new_full((cells,), -torch.inf)
        norms[cohort.cell] = torch.where(cohort.sends, squared_norms(payload, cohort), -torch.inf)
        order = norms.view(cohort.trials, -1).argsort(stable=True, dim=1, descending=True)
        best = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :wanted], True)
        return best.flatten()[cohort.cell] & cohort.sends

    def side_symbols(self, available: np.ndarray | None, cohort: Cohort) -> Tensor | None:
        return cohort.rows_of


def squared_norms(payload: Payload, cohort: Cohort) -> Tensor:
    """[N]: of what each row sends over the uplink."""
    total = torch.zeros_like(cohort.weight)
    for group in payload:
        if group.route == "ideal":
            continue
        for block in group.known.values():
            norm = torch.linalg.vector_norm(block.flatten(1), dim=1).square()
            total = total + norm if group.rows is None else total.index_add(0, group.rows, norm)
    return total
