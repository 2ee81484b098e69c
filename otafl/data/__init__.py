"""Load data sets, deal them out over devices and draw the minibatches of local work.

`DataSet` is what a data set of the user's own returns."""

from __future__ import annotations

from otafl.data.build import Samples, build
from otafl.data.dataset import DataSet
from otafl.data.loading import fingerprint, load, loaded

__all__ = ["DataSet", "Samples", "build", "fingerprint", "load", "loaded"]
