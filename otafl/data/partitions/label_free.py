"""Partitions that need no classes: even and log-normal sizes, and the users of the data."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.data.partitions.base import Partition, PartitionTask, SampleAssignment


class Iid(Partition):
    """IID partition: shuffled samples, divided evenly."""

    is_shuffled: ClassVar[bool] = True

    name: Literal["iid"] = "iid"

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        return SampleAssignment.split_evenly(task.draw_permutation(), task.devices)


class Lognormal(Partition):
    """Shuffled samples in parts of log-normal sizes.

    References
    ----------
    Li et al. 2020, "Federated Optimization in Heterogeneous Networks", section 5.1.
    """

    is_shuffled: ClassVar[bool] = True

    name: Literal["lognormal"] = "lognormal"
    sigma: float = Field(1.0, ge=0, le=20)  # a larger one exceeds the range of float64
    """standard deviation of the logarithm of a device's size"""

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        members, devices = task.draw_permutation(), task.devices
        if self.sigma == 0:
            return SampleAssignment.split_evenly(members, devices)
        share = task.generator.lognormal(0.0, self.sigma, devices)
        ends = np.rint(np.cumsum(share) / share.sum() * (len(members) - devices)).astype(np.int64)
        cuts = (ends + np.arange(1, devices + 1))[:-1]  # each device has a sample before its share
        return SampleAssignment(members, np.diff(cuts, prepend=0, append=len(members)))


class Natural(Partition):
    """Natural partition: each device is a user of the data set, or a group of users.

    If there are more users than devices, the users are drawn at random. With regroup, all users are
    in groups whose sizes follow a Dirichlet distribution (Shi et al. 2023, appendix C). A device's
    training samples come before its test samples.

    References
    ----------
    Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
    Shi et al. 2023, "PRIOR: Personalized Prior for Reactivating the Information Overlooked in
        Federated Learning", appendix C.
    """

    example: ClassVar = {"data.name": "femnist"}
    is_shuffled: ClassVar[bool] = True
    groups_users: ClassVar[bool] = True

    name: Literal["natural"] = "natural"
    regroup: float | None = Field(None, gt=0)
    """concentration of the Dirichlet distribution of group sizes; one user per device if not
    given"""
    min_users: int = Field(1, ge=1)
    """smallest number of users in a group, with regroup"""

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        if task.owner is None:
            sets = registry.list_fitting("data", lambda kind: bool(kind.has_users))
            raise UserError(
                "data.partition: 'natural' needs a data set whose samples have users, such as "
                f"{' or '.join(sets)}; use one, or another partition"
            )
        devices, generator = task.devices, task.generator
        users, user_of = np.unique(task.owner, return_inverse=True)
        needed = devices * (self.min_users if self.regroup else 1)
        if len(users) < needed:
            raise UserError(
                f"data.partition: 'natural': {devices} devices need {needed} users and the data "
                f"set has {len(users)}; use fewer devices or a smaller min_users"
            )
        device_of = np.full(len(users), -1)
        if self.regroup is None:
            chosen = np.sort(generator.choice(len(users), devices, replace=False))
            device_of[chosen] = np.arange(devices)
        else:
            # the minimum and a Dirichlet share of the other users, rounded down; those that remain
            # join devices at random
            share = generator.dirichlet(np.full(devices, self.regroup))
            free = len(users) - devices * self.min_users
            sizes = self.min_users + (free * share).astype(np.int64)
            joined = generator.integers(devices, size=len(users) - sizes.sum())
            sizes = sizes + np.bincount(joined, minlength=devices)
            device_of = np.repeat(np.arange(devices), sizes)
        device = device_of[user_of]
        order = np.argsort(device, kind="stable")
        ends = np.searchsorted(device[order], np.arange(devices + 1))
        return SampleAssignment(order[ends[0] : ends[-1]], np.diff(ends))
