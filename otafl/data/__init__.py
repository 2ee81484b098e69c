"""Data sets, their partition over devices, and the minibatches of local work. `DataSet` is what a
data set of one's own returns. Loaded on first use: settings are read without NumPy or torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otafl.data.dataset import DataSet, load

__all__ = ["DataSet", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from otafl.data import dataset

        return getattr(dataset, name)
    raise AttributeError(f"module 'otafl.data' has no attribute {name!r}")
