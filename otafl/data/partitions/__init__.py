"""Partitions: rules that divide the samples among the devices."""

from __future__ import annotations

from otafl.data.partitions.base import Partition, PartitionTask

__all__ = ["Partition", "PartitionTask"]
