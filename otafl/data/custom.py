"""Read a data set of the user's own: a function that returns `otafl.data.DataSet`,

    data_set(**options) -> DataSet

options: the keys of the section that no data set has. Labels and shapes are checked.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict

from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.losses.base import Labels
from otafl.user_code.custom_part import CustomFunction


class CustomData(CustomFunction, DataSource):
    """Call the user's function with the keys of the section."""

    table: ClassVar = "data"
    labels: ClassVar[Labels | None] = None

    model_config = ConfigDict(extra="allow", frozen=True)

    def read(self) -> DataSet:
        return self.call()
