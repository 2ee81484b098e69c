"""Deal samples out over the devices."""

from __future__ import annotations

from otafl.data.partitions.base import Partition, dealt

__all__ = ["Partition", "dealt"]
