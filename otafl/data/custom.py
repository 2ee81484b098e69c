"""Read a data set of the user's own: a function that returns `otafl.data.DataSet`,

    data_set(**options) -> DataSet

options: the keys of the section that no data set has. Labels and shapes are checked.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from otafl.core import custom
from otafl.core.settings import CustomSettings
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet


class CustomData(CustomSettings, DataSource):
    """Call the user's function with the keys of the section."""

    model_config = ConfigDict(extra="allow", frozen=True)

    def found(self) -> Any:
        return custom.fitting(self.name, "data.name", self.options)

    def read(self) -> DataSet:
        return custom.call(self.name, "data.name", self.options)
