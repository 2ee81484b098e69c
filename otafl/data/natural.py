"""Partitions by the data set's own users (LEAF: Caldas et al. 2018, "LEAF: A Benchmark for
Federated Settings", arXiv:1812.01097)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.data.config_partition import NaturalConfig

Indices = NDArray[np.int64]


def natural(
    owner: Indices | None, devices: int, config: NaturalConfig, generator: np.random.Generator
) -> list[Indices]:
    """The samples of each device's users, in the order of the samples."""
    if owner is None:
        raise UserError(
            "data.partition: 'natural' needs a data set whose samples have users, such as femnist "
            "or sent140; another partition would do"
        )
    users, user_of = np.unique(owner, return_inverse=True)
    needed = devices * (config.min_users if config.regroup else 1)
    if len(users) < needed:
        raise UserError(
            f"data.partition: 'natural': {devices} devices need {needed} users and the data set "
            f"has {len(users)}; fewer devices or a smaller min_users would do"
        )
    device_of = np.full(len(users), -1)
    if config.regroup is None:
        chosen = np.sort(generator.choice(len(users), devices, replace=False))
        device_of[chosen] = np.arange(devices)
    else:
        sizes = _sizes(len(users), devices, config.regroup, config.min_users, generator)
        device_of = np.repeat(np.arange(devices), sizes)
    device = device_of[user_of]
    order = np.argsort(device, kind="stable")
    ends = np.searchsorted(device[order], np.arange(devices + 1))
    return np.split(order, ends)[1:-1]


def _sizes(
    users: int, groups: int, alpha: float, least: int, generator: np.random.Generator
) -> Indices:
    """Users of each group: the least and a Dirichlet share of the others, rounded down; who is left
    over then joins a group at random."""
    share = generator.dirichlet(np.full(groups, alpha))
    sizes = least + ((users - groups * least) * share).astype(np.int64)
    joined = generator.integers(groups, size=users - sizes.sum())
    return sizes + np.bincount(joined, minlength=groups)
