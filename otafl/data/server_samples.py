"""Training samples that the server holds, and no device: of classes, of users, or a share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings
from otafl.data.dataset import DataSet, Indices


class ServerDataSettings(Settings):
    """Training samples that the server holds.

    Devices hold the others. The test samples of a class or a user of which the server holds all
    training samples belong to nobody.
    """

    classes: tuple[int, ...] | None = Field(None, min_length=1)
    """classes whose samples the server holds; all if not given"""
    fraction: float = Field(1.0, gt=0, le=1)
    """share of the training samples, or of the users; below 1 unless classes are given"""
    by: Literal["samples", "users"] = "samples"
    """samples: the share is drawn from all samples; users: all samples of a share of the users"""

    def find_conflicts(self) -> Iterable[str]:
        if self.classes is None and self.fraction == 1.0:
            yield "fraction: got 1, which leaves devices nothing; use less, or give classes"
        if self.classes is not None and self.by == "users":
            yield "by: users cannot be combined with classes; leave one of them out"

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Check that the data set has the classes or the users."""
        data = scenario.data
        if self.classes is not None and data.labels not in (None, "classes"):
            text = "the labels of the data set are no classes; use fraction alone"
            yield make_problem(text, "data.server.classes", "data")
        if self.by == "users" and not data.has_users:
            text = f"data '{data.name}' has no users; use by: samples"
            yield make_problem(text, "data.server.by", "data")

    def count(self, number: int) -> int:
        """Return how many of so many samples, or users, the server holds."""
        return round(self.fraction * number)


def withhold(settings: ServerDataSettings, data: DataSet) -> DataSet:
    """Move the server's samples out of the training samples.

    Parameters
    ----------
    settings : ServerDataSettings
        Section `data.server`.
    data : DataSet
        The samples.

    Returns
    -------
    DataSet
        The samples with `x_server` and `y_server`, without test and validation samples of classes
        or users of which devices have no training samples.

    Raises
    ------
    UserError
        If it leaves no sample to the server, to the devices or to the test.
    """
    groups: Indices = data.class_labels
    test_groups: Indices | None = data.y_test if data.labels == "classes" else None
    generator = np.random.default_rng([0, 0x5E4E4])  # the same draw in all trials
    if settings.by == "users":
        if data.owner is None:
            raise UserError("data.server.by: the data set has no users; use by: samples")
        groups, test_groups = data.owner, data.owner_test
        users = np.unique(groups)
        taken = np.isin(groups, generator.permutation(users)[: settings.count(len(users))])
    else:
        held = np.arange(len(groups))
        if settings.classes is not None:
            held = held[np.isin(groups, settings.classes)]
        taken = np.zeros(len(groups), bool)
        taken[generator.permutation(held)[: settings.count(len(held))]] = True
    if not taken.any() or taken.all():
        whose = "the server" if not taken.any() else "the devices"
        raise UserError(f"data.server: leaves {whose} no training sample; use another fraction")
    gone = np.setdiff1d(groups[taken], groups[~taken])
    server = data.select_train(taken)
    kept = replace(data.select_train(~taken), x_server=server.x_train, y_server=server.y_train)
    return _drop_tests(kept, gone, test_groups)


def _drop_tests(data: DataSet, gone: Indices, groups: Indices | None) -> DataSet:
    """Drop the test samples of classes or users that devices do not have."""
    if groups is None or not len(groups) or not len(gone):
        return data
    kept = ~np.isin(groups, gone)
    if not kept.any():
        raise UserError("data.server: leaves no test sample; use another fraction or other classes")
    data = data.select_test(kept)
    if data.labels != "classes" or not len(data.y_validation):
        return data
    left = ~np.isin(data.y_validation, gone)
    return replace(data, x_validation=data.x_validation[left], y_validation=data.y_validation[left])
