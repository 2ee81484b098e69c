"""Participants with the largest updates as transmitters, after all available devices have trained.

All devices report the norm of their update, a real number each and so a symbol of side information.
Those with the largest norms send it. The update of another device is dropped before its codec. A
chosen device that misses the slot is late like any other.

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
    """Selection of the transmitters with the largest norms of the update.

    Examples
    --------
    `docs/privacy.md` has a scenario with `selection: update_norm`.
    """

    is_channel_blind: ClassVar[bool] = True

    class Settings(Selection.Settings):
        name: Literal["update_norm"] = "update_norm"

        @property
        def assumes_increments(self) -> str:
            """The reason why devices must send increments."""
            return "chooses the devices with the largest updates, by the norm of their payload"

        def check(self, scenario: Any) -> Iterable[Problem]:
            devices, key = scenario.devices, "devices.selection"
            wrong = f"cannot be combined with {key}: 'update_norm', which"
            if devices.senders is not None:
                text = f"{wrong} chooses the transmitters itself; leave it out"
                yield make_problem(text, "devices.senders", key)
            wrong += " drops updates that are not sent in their own round;"
            if devices.protocol.goes_on:
                text = f"'{devices.protocol.name}' {wrong} use protocol: rounds"
                yield make_problem(text, "devices.protocol", key)
            if devices.late == "next":
                yield make_problem(f"'next' {wrong} use late: drop", "devices.late", key)

    def select_devices(
        self, available: Devices, wanted: NumWanted, round: int, state: ChannelState
    ) -> Devices:
        return available

    def select_transmitters(self, payload: Payload, cohort: Cohort, wanted: int) -> Tensor:
        cells = cohort.num_trials * cohort.num_devices
        norms = cohort.weight.new_full((cells,), -torch.inf, dtype=torch.float64)
        norms[cohort.flat_index] = torch.where(
            cohort.transmit_mask, compute_squared_norms(payload, cohort), -torch.inf
        )
        order = norms.view(cohort.num_trials, -1).argsort(stable=True, dim=1, descending=True)
        best = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :wanted], True)
        return best.flatten()[cohort.flat_index] & cohort.transmit_mask

    def count_overhead_symbols(self, available: Devices | None, cohort: Cohort) -> Tensor | None:
        return cohort.rows_per_trial


def compute_squared_norms(payload: Payload, cohort: Cohort) -> Tensor:
    """Compute the squared norms of the updates, without coordinates that a row does not know.

    Parameters
    ----------
    payload : tuple of Group
        Updates of all rows. Groups on the ideal route do not count.
    cohort : Cohort
        Participants, N rows.

    Returns
    -------
    Tensor, float64 [N]
        Squared norms.
    """
    total = torch.zeros_like(cohort.weight, dtype=torch.float64)
    for group in payload:
        if group.route == "ideal":
            continue
        for block in group.masked_tensors.values():
            rows = block.flatten(1)
            norm = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square()
            total = (
                total + norm
                if group.row_index is None
                else total.index_add(0, group.row_index, norm)
            )
    return total
