"""Let all available devices train, and those with the largest updates send them.

All report the norm of what they would send, a real number each and so a symbol of side information,
and those with the largest send it. The update of a device that is not chosen is dropped, before its
codec has seen it; one that is chosen and misses the slot is late like any other.

References
----------
Amiri, Gunduz, Kulkarni, Poor 2021, "Convergence of Update Aware Device Scheduling for Federated
    Learning at the Wireless Edge" (BN2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from otafl.core.contracts import ChannelState, Cohort, Payload
from otafl.core.problems import Problem, make_problem
from otafl.selection.base import Devices, NumWanted, Selection


class UpdateNorm(Selection):
    is_channel_blind: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["update_norm"] = "update_norm"

        @property
        def assumes_increments(self) -> str:
            return "chooses the devices that changed most, by the norm of what they would send"

        def check(self, scenario: Any) -> Iterable[Problem]:
            devices, key = scenario.devices, "devices.selection"
            wrong = f"does not go with {key}: 'update_norm', which"
            if devices.senders is not None:
                text = f"{wrong} chooses who sends itself; leave it out"
                yield make_problem(text, "devices.senders", key)
            wrong += " drops what is not sent in its own round;"
            if devices.protocol.goes_on:
                text = f"'{devices.protocol.name}' {wrong} protocol: rounds would do"
                yield make_problem(text, "devices.protocol", key)
            if devices.late == "next":
                yield make_problem(f"'next' {wrong} late: drop would do", "devices.late", key)

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return available

    def select_transmitters(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor:
        cells = cohort.num_trials * cohort.num_devices
        norms = cohort.weight.new_full((cells,), -torch.inf)
        norms[cohort.flat_index] = torch.where(
            cohort.transmit_mask, compute_squared_norms(payload, cohort), -torch.inf
        )
        order = norms.view(cohort.num_trials, -1).argsort(stable=True, dim=1, descending=True)
        best = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :wanted], True)
        return best.flatten()[cohort.flat_index] & cohort.transmit_mask

    def count_overhead_symbols(self, available: Devices | None, cohort: Cohort) -> Tensor | None:
        return cohort.rows_per_trial


def compute_squared_norms(payload: Payload, cohort: Cohort) -> Tensor:
    """Return the squared norm [N] of what each row sends over the uplink."""
    total = torch.zeros_like(cohort.weight)
    for group in payload:
        if group.route == "ideal":
            continue
        for block in group.masked_tensors.values():
            norm = torch.linalg.vector_norm(block.flatten(1), dim=1).square()
            total = (
                total + norm
                if group.row_index is None
                else total.index_add(0, group.row_index, norm)
            )
    return total
