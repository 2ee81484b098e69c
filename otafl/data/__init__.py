"""Data sets, their partitions over the devices, and the minibatches of local work.

A user-defined data set is a function that returns a `DataSet`.
"""

from __future__ import annotations

from otafl.data.build import Samples, build
from otafl.data.dataset import DataSet
from otafl.data.loading import compute_fingerprint, load, load_cached

__all__ = ["DataSet", "Samples", "build", "compute_fingerprint", "load", "load_cached"]
