"""Partitioner of Flower, with its arguments beside its name.

`partitioner` names a class of `flwr_datasets.partitioner`, and the other keys are its arguments.
`num_partitions` is `devices.count`, and each trial draws `seed`. `partition_by` is `label` by
default; `user` stands for the users of the samples, if the data have them. Samples are shuffled
first. The package flwr-datasets is needed: `pip install 'otafl[flower]'`.

References
----------
Beutel et al. 2020, "Flower: A Friendly Federated Learning Research Framework", arXiv:2007.14390.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from otafl.core.errors import UserError
from otafl.core.packages import import_extra
from otafl.core.suggestions import format_suggestion
from otafl.data.partitions.base import (
    Partition,
    PartitionTask,
    SampleAssignment,
    SampleCounts,
)

_SEED = 42
"""Seed when arguments are only checked."""


class Flower(Partition):
    """Partition of a partitioner that gets only the labels, and the users if there are any."""

    model_config = ConfigDict(extra="allow", frozen=True)

    example: ClassVar = {
        "data.partition.partitioner": "DirichletPartitioner",
        "data.partition.alpha": 0.3,
    }

    name: Literal["flower"] = "flower"
    partitioner: str
    """class of flwr_datasets.partitioner"""

    def check_counts(self, counts: SampleCounts) -> None:
        self._build_partitioner(counts, _SEED)

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        places, generator = task.draw_permutation(), task.generator
        partitioner = self._build_partitioner(task.counts, int(generator.integers(2**31)))
        from datasets import Dataset

        columns = {"label": task.labels[places], "place": places}
        if task.owner is not None:
            columns["user"] = task.owner[places]
        partitioner.dataset = Dataset.from_dict(columns)
        try:
            count = partitioner.num_partitions
            parts = [
                np.asarray(partitioner.load_partition(device)["place"][:], np.int64)
                for device in range(min(count, task.devices))
            ]
        except Exception as error:  # any error of a partitioner
            raise self._make_error(error) from error
        assigned = SampleAssignment.from_parts(parts)
        fault = ""
        if count != task.devices:
            fault = (
                f"makes {count} partitions for {task.devices} devices; use devices.count: {count}"
            )
        elif not assigned.counts.all():
            fault = (
                f"leaves device {assigned.counts.argmin()} without a sample; use other arguments "
                "or fewer devices"
            )
        elif len(np.unique(assigned.sample_index)) < len(assigned.sample_index):
            fault = (
                "gives a sample to several devices; use one that splits samples, such as "
                "DirichletPartitioner"
            )
        if fault:
            raise UserError(f"data.partition: {self.partitioner} {fault}")
        return assigned

    def _build_partitioner(self, counts: SampleCounts, seed: int) -> Any:
        """Build the partitioner.

        Raises UserError if it does not exist or its arguments do not fit.
        """
        partitioner = import_extra(
            "data.partition: 'flower'",
            "flower",
            "flwr_datasets.partitioner",
            instead=", or another partition",
        )
        known = [name for name in partitioner.__all__ if name != "Partitioner"]
        if self.partitioner not in known:
            hint = format_suggestion(self.partitioner, known) or ";"
            raise UserError(
                f"data.partition.partitioner: Flower has no {self.partitioner!r}{hint} known: "
                f"{', '.join(known)}"
            )
        kind: type[Any] = getattr(partitioner, self.partitioner)
        takes = inspect.signature(kind).parameters
        fixed = {"num_partitions": counts.devices, "seed": seed}
        given = {"partition_by": "label"} | (self.model_extra or {})
        for name in given.keys() & fixed:
            raise UserError(
                f"data.partition.{name}: got {given[name]!r}; leave it out; it is devices.count, "
                "or drawn by each trial"
            )
        if given["partition_by"] not in (("label", "user") if counts.has_users else ("label",)):
            raise UserError(
                f"data.partition.partition_by: got {given['partition_by']!r}; must be label, or "
                "user where samples have users"
            )
        defaults = fixed | {"partition_by": "label"}
        own = {name: value for name, value in defaults.items() if name in takes}
        try:
            return kind(**own | (self.model_extra or {}))
        except Exception as error:
            raise self._make_error(error, f"; it takes {', '.join(takes) or 'none'}") from error

    def _make_error(self, error: Exception, hint: str = "") -> UserError:
        """Return a UserError for an error of the partitioner."""
        said = " ".join(str(error).split())
        return UserError(
            f"data.partition: {self.partitioner}: {said} ({type(error).__name__}){hint}"
        )
