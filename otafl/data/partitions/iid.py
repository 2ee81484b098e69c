"""Shuffle the samples and deal them out evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from otafl.data.dealt import Dealt
from otafl.data.partitions.base import Counts, Deck, Partition


class Iid(Partition):
    """Give devices numbers of samples that differ by at most one."""

    shuffled: ClassVar[bool] = True

    name: Literal["iid"] = "iid"

    def sizes(self, counts: Counts) -> Sequence[int]:
        least, more = divmod(counts.samples, counts.devices)
        return [least + 1] * more + [least] * (counts.devices - more)

    def deal(self, deck: Deck) -> Dealt:
        return Dealt.evenly(deck.shuffled(), deck.devices)
