"""Deal samples out by a partitioner of Flower's, with its arguments beside its name.

`partitioner` names a class of `flwr_datasets.partitioner`; the other keys are its arguments, but
for `num_partitions`, which is `devices.count`, and `seed`, which each trial draws. `partition_by`
is `label` unless it is given; `user` stands for the samples' users, where the data have them.
Samples are shuffled before. It needs the package flwr-datasets, `pip install 'otafl[hf]'`.

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
from otafl.core.words import did_you_mean
from otafl.data.dealt import Dealt
from otafl.data.partitions.base import Counts, Deck, Partition

_SEED = 42
"""What stands for a trial's seed where arguments are only looked at."""


class Flower(Partition):
    """Hand the partitioner the labels alone, and take which samples it put where."""

    model_config = ConfigDict(extra="allow", frozen=True)

    example: ClassVar = {
        "data.partition.partitioner": "DirichletPartitioner",
        "data.partition.alpha": 0.3,
    }

    name: Literal["flower"] = "flower"
    partitioner: str
    """class of flwr_datasets.partitioner"""

    def fits(self, counts: Counts) -> None:
        self._made(counts, _SEED)

    def deal(self, deck: Deck) -> Dealt:
        places, generator = deck.shuffled(), deck.generator
        partitioner = self._made(deck.counts, int(generator.integers(2**31)))
        from datasets import Dataset

        columns = {"label": deck.labels[places], "place": places}
        if deck.owner is not None:
            columns["user"] = deck.owner[places]
        partitioner.dataset = Dataset.from_dict(columns)
        try:
            count = partitioner.num_partitions
            parts = [
                np.asarray(partitioner.load_partition(device)["place"][:], np.int64)
                for device in range(min(count, deck.devices))
            ]
        except Exception as error:  # whatever a partitioner makes of its arguments
            raise self._refused(error) from error
        self._check(count, parts, deck)
        return Dealt.of(parts)

    def _made(self, counts: Counts, seed: int) -> Any:
        """Return the partitioner. Raises UserError where there is none, or its arguments do not
        fit."""
        kind = self._kind()
        takes = inspect.signature(kind).parameters
        own = {"num_partitions": counts.devices, "seed": seed, "partition_by": "label"}
        arguments = {name: one for name, one in own.items() if name in takes}
        arguments |= self._given(list(takes), counts.users)
        for name, one in takes.items():
            if one.default is one.empty and name not in arguments:
                raise UserError(f"data.partition.{name}: {self.partitioner} needs it; add the key")
        try:
            return kind(**arguments)
        except Exception as error:
            raise self._refused(error) from error

    def _given(self, takes: list[str], users: bool) -> dict[str, Any]:
        """Return the arguments of the section, if the partitioner takes them."""
        given = dict(self.model_extra or {})
        columns = ("label", "user") if users else ("label",)
        for name, one in given.items():
            said = f"data.partition.{name}: got {one!r}; "
            if name in ("num_partitions", "seed"):
                raise UserError(f"{said}leave it out, it is devices.count or what each trial draws")
            if name not in takes:
                hint = did_you_mean(name, takes) or ";"
                raise UserError(
                    f"data.partition.{name}: {self.partitioner} has no such argument{hint} it "
                    f"takes {', '.join(takes) or 'none'}"
                )
            if name == "partition_by" and one not in columns:
                raise UserError(f"{said}must be label, or user where samples have users")
        return given

    def _kind(self) -> type[Any]:
        """Return the class of the partitioner."""
        partitioner = import_extra(
            "data.partition: 'flower'",
            "hf",
            "flwr_datasets.partitioner",
            instead=", or another partition",
        )
        known = [name for name in partitioner.__all__ if name != "Partitioner"]
        if self.partitioner not in known:
            hint = did_you_mean(self.partitioner, known) or ";"
            raise UserError(
                f"data.partition.partitioner: Flower has no {self.partitioner!r}{hint} known: "
                f"{', '.join(known)}"
            )
        kind: type[Any] = getattr(partitioner, self.partitioner)
        return kind

    def _refused(self, error: Exception) -> UserError:
        said = " ".join(str(error).split())
        return UserError(f"data.partition: {self.partitioner}: {said} ({type(error).__name__})")

    def _check(self, count: int, parts: list[Any], deck: Deck) -> None:
        """Raise UserError unless each device has samples, and no two the same."""
        if count != deck.devices:
            raise UserError(
                f"data.partition: {self.partitioner} makes {count} partitions, and there are "
                f"{deck.devices} devices; devices.count: {count} would do"
            )
        empty = next((device for device, part in enumerate(parts) if not len(part)), None)
        if empty is not None:
            raise UserError(
                f"data.partition: {self.partitioner} leaves device {empty} without a sample; other "
                "arguments or fewer devices would do"
            )
        held = np.concatenate(parts)
        if len(np.unique(held)) < len(held):
            raise UserError(
                f"data.partition: {self.partitioner} gives a sample to several devices; one that "
                "splits samples, such as DirichletPartitioner, would do"
            )
