"""Deal samples out over the devices."""

from __future__ import annotations

from otafl.data.partitions.base import Counts, Deck, Partition

__all__ = ["Counts", "Deck", "Partition"]
