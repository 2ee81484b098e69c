"""Payloads of devices that missed their slot, kept until the slot at which they are ready."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.contracts import Blocks, Cohort, Group, Payload


@dataclass(frozen=True)
class Update:
    """A cohort and what it sends."""

    cohort: Cohort
    payload: Payload

    def split(self, keep: Tensor) -> tuple[Update, Update]:
        """The rows [N] bool that are kept, and the others."""
        return self.take(keep), self.take(~keep)

    def nobody(self) -> Update:
        """Return no rows, of a payload with the same groups and shapes."""
        return self.take(torch.zeros_like(self.cohort.sends))

    def take(self, keep: Tensor) -> Update:
        """The rows [N] bool that are kept."""
        renumber = keep.cumsum(0) - 1
        payload = tuple(group.select(keep, renumber) for group in self.payload)
        return Update(self.cohort.take(keep.nonzero().squeeze(1)), payload)

    def join(self, other: Update) -> Update:
        """Return both together, rows in order of trial and device."""
        cohort, order = Cohort.join(self.cohort, other.cohort)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        payload = tuple(
            _join(a, b, place, self.cohort.size)
            for a, b in zip(self.payload, other.payload, strict=True)
        )
        return Update(cohort, payload)


def _join(first: Group, second: Group, place: Tensor, size: int) -> Group:
    every = torch.arange(len(place), device=place.device)
    rows = torch.cat(
        [
            every[:size] if first.rows is None else first.rows,
            every[size:] if second.rows is None else second.rows + size,
        ]
    )
    order = torch.argsort(place[rows], stable=True)
    masks = first.full_mask, second.full_mask
    mask = None if masks[0] is None or masks[1] is None else _cat(masks[0], masks[1], order)
    share = None
    if first.share is not None and second.share is not None:
        share = torch.cat([first.share, second.share])[order]
    return replace(
        first,
        rows=place[rows][order],
        blocks=_cat(first.blocks, second.blocks, order),
        mask=mask,
        share=share,
    )


def _cat(first: Blocks, second: Blocks, order: Tensor) -> Blocks:
    return {name: torch.cat([first[name], second[name]])[order] for name in first}
