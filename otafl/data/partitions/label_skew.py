"""Give each device samples of a fixed number of classes only."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import Indices
from otafl.data.partitions.base import MOST_SIGMA, Counts, Deck, Partition, cut_lognormal


class LabelSkew(Partition):
    """Split each class over the devices that hold it; numbers of holders differ by at most one."""

    name: Literal["label_skew"] = "label_skew"
    classes_per_device: int = Field(2, ge=1)
    """classes a device holds"""
    size_sigma: float = Field(0.0, ge=0, le=MOST_SIGMA)
    """deviation of the logarithm of a device's share of each of its classes; 0 splits a class
    evenly"""

    def fits(self, counts: Counts) -> None:
        if self.classes_per_device > counts.classes:
            raise UserError(
                f"data.partition.classes_per_device: {self.classes_per_device} is more than the "
                f"{counts.classes} classes of the training samples"
            )
        counts.check_each("classes_per_device", self.classes_per_device)

    def deal(self, deck: Deck) -> list[Indices]:
        self.fits(deck.counts)
        classes, each = deck.by_class(), self.classes_per_device
        devices, generator = deck.devices, deck.generator
        holders = _holders(len(classes), each, deck)
        parts: list[list[Indices]] = [[] for _ in range(devices)]
        for members, of_class in zip(classes, holders, strict=True):
            if len(of_class) > len(members):
                raise UserError(
                    f"devices.count: {len(of_class)} of {devices} devices would share the "
                    f"{len(members)} samples of class {deck.labels[members[0]]}; use fewer "
                    "devices, or a smaller data.partition.classes_per_device"
                )
            if of_class:
                pieces = cut_lognormal(members, len(of_class), self.size_sigma, 1, generator)
                for device, piece in zip(of_class, pieces, strict=True):
                    parts[device].append(piece)
        return [np.concatenate(pieces) for pieces in parts]


def _holders(classes: int, each: int, deck: Deck) -> list[list[int]]:
    """Draw the devices that hold each class, in random order. Each device takes the classes that
    the fewest hold so far, ties broken at random: numbers of holders never differ by more than
    one."""
    holders: list[list[int]] = [[] for _ in range(classes)]
    for device in deck.generator.permutation(deck.devices):
        tie = deck.generator.permutation(classes)
        held = np.array([len(holders[c]) for c in tie])
        for c in tie[np.argsort(held, kind="stable")[:each]]:
            holders[c].append(int(device))
    return holders
