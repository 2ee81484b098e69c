"""Contract of a data set, and the settings that all data sets have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from otafl.core.choices import declare_choice
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings
from otafl.data.augment import AugmentSettings
from otafl.data.dataset import DataSet
from otafl.data.files import Files
from otafl.data.server_samples import ServerDataSettings
from otafl.losses.base import Labels


class DataSource(Settings):
    """Data set that a scenario names. A source is its settings, the section `data`."""

    files: ClassVar[Files | None] = None
    """Files that the data set is read from; None if there is nothing to download."""

    ships_with: ClassVar[str] = ""
    """Package that contains the data; empty if there are files, or the scenario names them."""

    has_users: ClassVar[bool] = False
    """Whether samples have users, for partition natural; a property if settings decide it."""

    labels: ClassVar[Labels | None] = "classes"
    """Kind of its labels; None where it is not known before the data are read."""

    default_loss: ClassVar[str] = ""
    """The loss of a scenario that names none; the table's default where it is empty."""

    classes: ClassVar[int | None] = None
    """Number of classes, if it is known before the data are read; of values the outputs, of tokens
    the vocabulary."""

    name: str
    partition: Any = declare_choice("partition", "partition of the samples over the devices")
    validation: float = Field(0.0, ge=0, lt=1)
    """share of the training samples that is set aside for tuning; none by default"""
    test: Literal["official", "train_tail", "per_device"] = "official"
    """origin of the test samples. official: the official test set. train_tail: the last training
    samples, as many as the official test set has, which is then unused. per_device: the devices'
    own, the last `test_share` of each device's samples, after all training and official test
    samples are partitioned together"""
    test_share: float = Field(0.25, gt=0, lt=1)
    """share of a device's samples that are its test samples, with test: per_device"""
    own_test: bool = False
    """whether models are also evaluated on each device's own test samples: those of the classes
    that it trains on, or of its users with partition natural; test: per_device always does so"""
    server: ServerDataSettings | None = None
    """training samples that the server holds and no device, for a pretrained start; none if not
    given"""
    augment: AugmentSettings | None = None
    """random crops and flips of training images; none if not given"""
    train_samples: int | None = Field(None, ge=1)
    """number of training samples that are used, the first ones; all if not given"""

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Shape of a sample, None if it is unknown before the data are read."""
        return None

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Check that partition and tests need no classes where the labels are none."""
        if self.labels in (None, "classes"):
            return
        partition = self.partition
        for text in partition.find_misfits(self.labels):
            yield Problem(text, ("data", "partition"), (("data",),))
        if self.own_test and not getattr(partition, "groups_users", False):
            text = (
                f"a device's own test samples are those of its classes, but data '{self.name}' "
                "has none; use data.test: per_device, or a partition by users"
            )
            yield make_problem(text, "data.own_test", "data")

    @abstractmethod
    def read(self) -> DataSet:
        """Read the samples with the official split.

        Returns
        -------
        DataSet
            Training and test samples.

        Raises
        ------
        UserError
            If a file is missing or corrupt.
        """
