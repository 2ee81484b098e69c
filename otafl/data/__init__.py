"""Load data sets, deal them out over devices and draw the minibatches of local work.

`DataSet` is what a data set of the user's own returns."""

from __future__ import annotations

from otafl.core.renamed import keep_old_names
from otafl.data.build import Samples, build
from otafl.data.dataset import DataSet
from otafl.data.loading import compute_fingerprint, load, load_cached

__all__ = ["DataSet", "Samples", "build", "compute_fingerprint", "load", "load_cached"]

keep_old_names(__name__)
