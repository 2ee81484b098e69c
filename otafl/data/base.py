"""Define the contract of a data set, and the settings that every data set has."""

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
from otafl.losses.base import Labels


class DataSource(Settings):
    """Read a data set. A source is its settings, the section `data` of a scenario."""

    files: ClassVar[Files | None] = None
    """The files that it is read from; None if there are none to download."""

    ships_with: ClassVar[str] = ""
    """The package that has the data, where there are no files; empty where the scenario says where
    they are."""

    has_users: ClassVar[bool] = False
    """Samples have users, by which they can be dealt out; a property where the settings say it."""

    labels: ClassVar[Labels | None] = "classes"
    """Kind of its labels; None where it is not known before the data are read."""

    default_loss: ClassVar[str] = ""
    """The loss of a scenario that names none; the table's default where it is empty."""

    classes: ClassVar[int | None] = None
    """The number of classes, where it is known before the data are read; of values the outputs,
    of tokens the vocabulary."""

    samples: ClassVar[tuple[int, int] | None] = None
    """Training samples and test samples of the official split, where they are known before the data
    are read."""

    name: str
    partition: Any = declare_choice("partition", "how samples are dealt out over the devices")
    validation: float = Field(0.0, ge=0, lt=1)
    """share of the training samples held out for tuning"""
    test: Literal["official", "train_tail", "per_device"] = "official"
    """official test set; or the last training samples (as many as the official test set has), the
    official set then unused; or, per_device, training and official test samples together are dealt
    out, and the last `test_share` of each device's samples test"""
    test_share: float = Field(0.25, gt=0, lt=1)
    """share of a device's samples that test, with test: per_device"""
    own_test: bool = False
    """also evaluate on each device's own test samples: those of the classes that it trains on (with
    partition natural: of its users); test: per_device always does, on its own share"""
    augment: AugmentSettings | None = None
    """random crops and flips of training images; none if not given"""
    train_samples: int | None = Field(None, ge=1)
    """use only the first so many training samples; all if not given"""

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """Return the shape of a sample, where it is known before the data are read."""
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
        """Return the samples with the official split.

        Raises
        ------
        UserError : if a file is missing or corrupt.
        """
