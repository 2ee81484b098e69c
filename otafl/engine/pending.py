"""Updates of devices that missed their slot, until the slot at which they are ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group, Payload, Tensors

_IN_FILES = {"num_devices": "population", "all_transmit": "all_send"}
"""Field of a cohort -> its name in checkpoints, whose format stays."""


@dataclass(frozen=True)
class Update:
    """A cohort and its payload.

    made: the method's payload, if it is needed later and faults or the codec have changed it;
    otherwise ().
    """

    cohort: Cohort
    payload: Payload
    made: Payload = ()

    @property
    def own(self) -> Payload:
        """The payload that the method made."""
        return self.made or self.payload

    def coded(self, payload: Payload) -> Update:
        """Return the update with this payload to transmit, and the same method's payload."""
        same = all(new is old for new, old in zip(payload, self.own, strict=True))
        return Update(self.cohort, payload, () if same else self.own)

    def plain(self) -> dict[str, Any]:
        """Return cohort and payloads as plain data, see `otafl.core.stateful`."""
        return {
            "cohort": _values(self.cohort),
            "payload": [_values(one) for one in self.payload],
            "made": [_values(one) for one in self.made],
        }

    @staticmethod
    def of_plain(kept: Mapping[str, Any]) -> Update:
        """Return the update that `plain` has converted."""
        payload, made = (tuple(Group(**one) for one in kept[name]) for name in ("payload", "made"))
        return Update(Cohort(**_of_file(kept["cohort"])), payload, made)

    def split(self, keep: Tensor) -> tuple[Update, Update]:
        """Return the rows [N] bool that are kept, and the others."""
        return self.take(keep), self.take(~keep)

    def nobody(self) -> Update:
        """Return an update without rows, with the same groups and shapes."""
        return self.take(torch.zeros_like(self.cohort.sends))

    def take(self, keep: Tensor) -> Update:
        """Return the rows [N] bool that are kept."""
        renumber = keep.cumsum(0) - 1
        payload, made = (
            tuple(group.select(keep, renumber) for group in groups)
            for groups in (self.payload, self.made)
        )
        return Update(self.cohort.take(keep.nonzero().squeeze(1)), payload, made)

    def join(self, other: Update) -> Update:
        """Return both together, with rows in the order of trial and device."""
        cohort, order = Cohort.join(self.cohort, other.cohort)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        sizes = self.cohort.size, other.cohort.size
        own = (self.own, other.own) if self.made or other.made else ((), ())
        payload, made = (
            tuple(_placed(Group.joined([a, b], sizes), place) for a, b in zip(*both, strict=True))
            for both in ((self.payload, other.payload), own)
        )
        return Update(cohort, payload, made)


def _values(one: Cohort | Group) -> dict[str, Any]:
    return {
        _IN_FILES.get(field.name, field.name): getattr(one, field.name) for field in fields(one)
    }


def _of_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a cohort from those of a file."""
    names = {old: name for name, old in _IN_FILES.items()}
    return {names.get(name, name): value for name, value in values.items()}


def _placed(group: Group, place: Tensor) -> Group:
    """Return the group of a cohort whose rows move to other places [N]; its rows stay in order."""
    assert group.rows is not None
    rows = place[group.rows]
    order = torch.argsort(rows, stable=True)

    def sorted_(blocks: Tensors) -> Tensors:
        return {name: block[order] for name, block in blocks.items()}

    return replace(
        group,
        rows=rows[order],
        blocks=sorted_(group.blocks),
        mask=None if group.mask is None else sorted_(group.mask),
        share=None if group.share is None else group.share[order],
    )
