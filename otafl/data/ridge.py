r"""Generate linear regression over devices whose optima and Hessians differ, with a known optimum.

User k has samples x with labels y = x^T w_k + noise, where

    w_k = w* + optimum_spread v_k,    v_k normal with E|v_k|^2 = 1,

and |w*| = 1. The inputs of user k have their own second moment: a common rotation times scales
exp(hessian_spread z), z standard normal. All inputs are then transformed so that the mean Hessian
of all users' training samples has exactly the eigenvalues from 1 to 1 / condition, geometrically
spaced, in random directions. Every user has equally many samples, and partition `natural` makes a
device of each. With `model: linear` the results have `excess_risk`, since the optimum and its risk
follow from the training samples exactly (see `otafl.evaluation.evaluation`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.choices import declare_choice
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.losses.base import Labels


class Ridge(DataSource):
    """Samples x [n, features] and values y [n, 1], user by user."""

    ships_with: ClassVar[str] = "otafl"
    has_users: ClassVar[bool] = True
    labels: ClassVar[Labels | None] = "values"
    default_loss: ClassVar[str] = "squared"
    classes: ClassVar[int] = 1
    example: ClassVar = {"model.name": "linear"}

    name: Literal["ridge"] = "ridge"
    partition: Any = declare_choice(
        "partition", "how samples are assigned to the devices", default="natural"
    )
    users: int = Field(10, ge=1)
    """users with samples of their own; as many devices at most"""
    user_samples: int = Field(50, ge=1)
    """training samples of a user"""
    user_test_samples: int = Field(50, ge=1)
    """test samples of a user"""
    features: int = Field(10, ge=1)
    """numbers of a sample"""
    condition: float = Field(10.0, ge=1)
    """condition number of the mean Hessian: its largest eigenvalue is 1, its smallest the
    reciprocal"""
    optimum_spread: float = Field(0.5, ge=0)
    """root mean square distance of the users' own weights from the common ones, over their norm;
    users share the optimum at 0 only without label_noise and model.ridge"""
    hessian_spread: float = Field(0.5, ge=0, le=3)
    """standard deviation of the logarithm by which the users' inputs differ in scale; 0: by their
    samples only"""
    label_noise: float = Field(0.1, ge=0)
    """standard deviation of the noise on labels"""

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.features,)

    def read(self) -> DataSet:
        generator = np.random.default_rng(0)  # the same samples in all trials
        counts = self.user_samples, self.user_test_samples
        scale = np.exp(
            self.hessian_spread * generator.standard_normal((self.users, 1, self.features))
        )
        rotation = _draw_rotation(self.features, generator)
        train, test = (
            (scale * generator.standard_normal((self.users, n, self.features))) @ rotation
            for n in counts
        )
        change = self._whiten(train.reshape(-1, self.features), generator)
        optimum = generator.standard_normal(self.features)
        optimum /= np.linalg.norm(optimum)
        own = generator.standard_normal((self.users, self.features)) / self.features**0.5
        weights = optimum + self.optimum_spread * own
        parts = []
        for x in (train @ change, test @ change):
            noise = self.label_noise * generator.standard_normal(x.shape[:2])
            y = np.einsum("knp,kp->kn", x, weights) + noise
            parts += [x.reshape(-1, self.features), y.reshape(-1, 1)]
        owner, owner_test = (np.repeat(np.arange(self.users), n) for n in counts)
        x_train, y_train, x_test, y_test = (part.astype(np.float32) for part in parts)
        return DataSet(x_train, y_train, x_test, y_test, owner=owner, owner_test=owner_test)

    def _whiten(self, x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the matrix that gives samples x [n, features] the requested second moment.

        If there are fewer samples than features, the moment is near to it.
        """
        moment = x.T @ x / len(x)
        values, vectors = np.linalg.eigh(moment)
        inverse = np.where(values > 1e-12 * values.max(), 1.0 / np.sqrt(values.clip(1e-300)), 0.0)
        wanted = np.geomspace(1.0, 1.0 / self.condition, self.features)
        turn = _draw_rotation(self.features, generator)
        out: np.ndarray = (vectors * inverse) @ vectors.T @ (turn * np.sqrt(wanted)) @ turn.T
        return out


def _draw_rotation(size: int, generator: np.random.Generator) -> np.ndarray:
    """Draw a random orthogonal matrix."""
    q, r = np.linalg.qr(generator.standard_normal((size, size)))
    return np.asarray(q * np.sign(np.diag(r)))
