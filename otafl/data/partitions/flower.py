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
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from otafl.core.errors import UserError
from otafl.core.packages import import_extra
from otafl.core.suggestions import format_suggestion
from otafl.data.partitions.base import Partition, PartitionTask, SampleAssignment


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

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        package = import_extra(
            "data.partition: 'flower'",
            "flower",
            "datasets",
            "flwr_datasets.partitioner",
            instead=", or another partition",
        )
        from datasets import Dataset

        known = [name for name in package.__all__ if name != "Partitioner"]
        if self.partitioner not in known:
            hint = format_suggestion(self.partitioner, known) or ";"
            raise UserError(
                f"data.partition.partitioner: Flower has no {self.partitioner!r}{hint} known: "
                f"{', '.join(known)}"
            )
        kind = getattr(package, self.partitioner)
        takes = inspect.signature(kind).parameters
        places = task.draw_permutation()
        fixed = {"num_partitions": task.devices, "seed": int(task.generator.integers(2**31))}
        fixed = {name: value for name, value in fixed.items() if name in takes}
        given = {"partition_by": "label"} if "partition_by" in takes else {}
        columns = {"label": task.labels[places], "place": places}
        if task.owner is not None:
            columns["user"] = task.owner[places]
        try:
            partitioner = kind(**fixed, **given | (self.model_extra or {}))
            partitioner.dataset = Dataset.from_dict(columns)
            count = partitioner.num_partitions
            assigned = SampleAssignment.from_parts(
                [
                    np.asarray(partitioner.load_partition(device)["place"][:], np.int64)
                    for device in range(min(count, task.devices))
                ]
            )
        except Exception as error:  # any error of a partitioner
            said = " ".join(str(error).split())
            raise UserError(
                f"data.partition: {self.partitioner}: {said} ({type(error).__name__}); it takes "
                f"{', '.join(takes) or 'none'}, and otafl gives {' and '.join(fixed) or 'none'}"
            ) from error
        samples = assigned.sample_index
        if count != task.devices:
            fault = (
                f"makes {count} partitions for {task.devices} devices; use devices.count: {count}"
            )
        elif not assigned.counts.all():
            fault = (
                f"leaves device {assigned.counts.argmin()} without a sample; use other arguments "
                "or fewer devices"
            )
        elif len(np.unique(samples)) < len(samples):
            fault = (
                "gives a sample to several devices; use one that splits samples, such as "
                "DirichletPartitioner"
            )
        else:
            return assigned
        raise UserError(f"data.partition: {self.partitioner} {fault}")
