"""User-defined data set: a function that returns `otafl.data.DataSet`.

    data_set(**options) -> DataSet

The options are the keys of the section that built-in data sets do not have. Labels and shapes are
checked.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict

from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.losses.base import Labels
from otafl.user_code.custom_part import CustomFunction


class CustomData(CustomFunction, DataSource):
    """Data set of a user-defined function, which gets the options of the section."""

    table: ClassVar = "data"
    labels: ClassVar[Labels | None] = None

    model_config = ConfigDict(extra="allow", frozen=True)

    def read(self) -> DataSet:
        return self.call()
