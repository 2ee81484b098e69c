"""Deal samples out over the devices."""

from __future__ import annotations

from otafl.data.partitions.base import Deck, Partition

__all__ = ["Deck", "Partition"]
