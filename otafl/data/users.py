"""Samples by user, and LEAF's random choice of users and of their test samples.

References
----------
Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from otafl.core.errors import UserError
from otafl.data.dataset import DataSet, Indices, Labelled

Fraction = Annotated[
    float,
    Field(gt=0, le=1, description="share of all samples, for which users are drawn at random"),
]
MinSamples = Annotated[int, Field(ge=2, description="smallest number of samples of a user")]
SampleSeed = Annotated[
    int, Field(ge=0, description="seed of the draws of users and of their test samples")
]
"""Types of the fields `fraction`, `min_samples` and `sample_seed` of such a data set."""

_TRAIN_SHARE = 0.9


@dataclass(frozen=True)
class User:
    """Training and test samples of one user, in the form that the data set has until then."""

    x_train: NDArray[Any]
    y_train: Labelled
    x_test: NDArray[Any]
    y_test: Labelled


def split_user(x: NDArray[Any], y: Indices, generator: np.random.Generator) -> User:
    """Split the samples of a user, as in LEAF's `split_data.py`.

    Parameters
    ----------
    x : ndarray, [n, ...]
        Two samples or more.
    y : ndarray, int64 [n]
        Their labels.
    generator : numpy.random.Generator
        Random generator of the split.

    Returns
    -------
    User
        Nine tenths of the samples for training and the others for testing, at least one each. Both
        parts keep the order.
    """
    kept = min(max(1, int(_TRAIN_SHARE * len(y))), len(y) - 1)
    train = np.zeros(len(y), bool)
    train[generator.permutation(len(y))[:kept]] = True
    return User(x[train], y[train], x[~train], y[~train])


def draw_users(
    sample_counts: Sequence[int] | Indices,
    fraction: float,
    min_samples: int,
    generator: np.random.Generator,
) -> Indices:
    """Draw users at random until they have a fraction of all samples, as in LEAF's non-IID draw.

    Parameters
    ----------
    sample_counts : Sequence of int
        Number of samples of each user.
    fraction : float
        Fraction of all samples.
    min_samples : int
        Smallest number of samples of a user.
    generator : numpy.random.Generator
        Random generator of the draw.

    Returns
    -------
    ndarray, int64 [n]
        Drawn users with at least `min_samples` samples, in ascending order.

    Raises
    ------
    UserError
        If no drawn user has so many samples.
    """
    counts = np.asarray(sample_counts, np.int64)
    order = generator.permutation(len(counts))
    needed = fraction * counts.sum()
    drawn = order[: np.searchsorted(np.cumsum(counts[order]), needed - 0.5) + 1]
    chosen = np.sort(drawn[counts[drawn] >= min_samples])
    if not len(chosen):
        raise UserError(
            f"data.min_samples: none of the {len(drawn)} drawn users has {min_samples} samples; "
            "use a smaller number or a larger data.fraction"
        )
    return chosen


def join_users(users: Sequence[User], classes: int) -> DataSet:
    """Join the samples of all users, user by user, with their owners."""
    parts = ("x_train", "y_train", "x_test", "y_test")
    joined = {part: np.concatenate([getattr(user, part) for user in users]) for part in parts}
    owner, owner_test = (
        np.repeat(np.arange(len(users)), [len(getattr(user, part)) for user in users])
        for part in ("y_train", "y_test")
    )
    return DataSet(**joined, classes=classes, owner=owner, owner_test=owner_test)
