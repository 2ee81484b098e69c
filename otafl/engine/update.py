"""Updates of devices that missed their slot, until the slot at which they are ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group, Payload
from otafl.engine.payload_collector import reorder_group


@dataclass(frozen=True)
class Update:
    """A cohort and its payload.

    original: the method's payload, if it is needed later and faults or the codec have changed it;
    otherwise ().
    """

    cohort: Cohort
    payload: Payload
    original: Payload = ()

    @property
    def original_payload(self) -> Payload:
        """The payload that the method made."""
        return self.original or self.payload

    def replace_payload(self, payload: Payload) -> Update:
        """Return the update with this payload to transmit, and the same method's payload."""
        same = all(new is old for new, old in zip(payload, self.original_payload, strict=True))
        return Update(self.cohort, payload, () if same else self.original_payload)

    def state_dict(self) -> dict[str, Any]:
        """Return cohort and payloads as plain data, see `otafl.core.stateful`."""
        return {
            "cohort": _to_dict(self.cohort),
            "payload": [_to_dict(one) for one in self.payload],
            "made": [_to_dict(one) for one in self.original],
        }

    @staticmethod
    def from_state_dict(state: Mapping[str, Any]) -> Update:
        """Return the update that `state_dict` has converted."""
        payload, made = (tuple(Group(**one) for one in state[name]) for name in ("payload", "made"))
        return Update(Cohort(**state["cohort"]), payload, made)

    def split(self, keep: Tensor) -> tuple[Update, Update]:
        """Return the rows [N] bool that are kept, and the others."""
        return self.take(keep), self.take(~keep)

    def make_empty(self) -> Update:
        """Return an update without rows, with the same groups and shapes."""
        return self.take(torch.zeros_like(self.cohort.transmit_mask))

    def take(self, keep: Tensor) -> Update:
        """Return the rows [N] bool that are kept."""
        renumber = keep.cumsum(0) - 1
        payload, made = (
            tuple(group.select(keep, renumber) for group in groups)
            for groups in (self.payload, self.original)
        )
        return Update(self.cohort.take(keep.nonzero().squeeze(1)), payload, made)

    def join(self, update: Update) -> Update:
        """Return both together, with rows in the order of trial and device."""
        cohort, order = Cohort.join(self.cohort, update.cohort)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        sizes = self.cohort.num_rows, update.cohort.num_rows
        own = (
            (self.original_payload, update.original_payload)
            if self.original or update.original
            else ((), ())
        )
        payload, made = (
            tuple(
                reorder_group(Group.join([a, b], sizes), place) for a, b in zip(*both, strict=True)
            )
            for both in ((self.payload, update.payload), own)
        )
        return Update(cohort, payload, made)


def _to_dict(one: Cohort | Group) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in fields(one)}
