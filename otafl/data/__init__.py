"""Load data sets, deal them out over devices and draw the minibatches of local work.

`DataSet` is what a data set of the user's own returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otafl.core.renamed import find_new_name
from otafl.data.build import Samples, build
from otafl.data.dataset import DataSet
from otafl.data.loading import compute_fingerprint, load, load_cached

_OLD_NAMES = {"loaded": "load_cached"}
"""Old name -> new name."""

__all__ = ["DataSet", "Samples", "build", "compute_fingerprint", "load", "load_cached"]


if not TYPE_CHECKING:  # else every name would be one of this module's

    def __getattr__(name: str) -> Any:
        return globals()[find_new_name(__name__, _OLD_NAMES, name)]
