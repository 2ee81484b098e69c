"""Classes that vary with the positions of the devices.

Each sample of class c goes to device k with a probability in proportion to

    v_kc = 1 - s + s a_kc,

with the strength s and the affinity a_kc of the class to the device's place. In `sectors` and
`rings` of the plane around the first server, each class has one part, where its affinity is one,
and zero elsewhere. In a `field`, a device's affinities are a draw of a symmetric Dirichlet
distribution, relative to its mean. They are those of gamma variables with a Gaussian copula, whose
normal variable of each class is a field over the plane with the correlation exp(-d / length_m).

With strength 0 the samples are independent of the places, and with strength 1 all samples of a part
are of its classes. Positions are those of the channel at the start of a trial. Classes of a part
without devices are left out.

References
----------
Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks", section 4,
    for Dirichlet proportions.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field
from scipy import special

from otafl.core.errors import UserError
from otafl.data.partitions.base import Partition, PartitionTask, SampleAssignment

WAVES = 256
"""Number of cosines in a field."""


class ByPlace(Partition):
    """Classes by place: in sectors or rings around the server, or by a field over the plane."""

    needs_classes: ClassVar[bool] = True
    needs_positions: ClassVar[bool] = True
    example: ClassVar = {"channel.name": "umi"}

    name: Literal["by_place"] = "by_place"
    pattern: Literal["sectors", "rings", "field"] = "sectors"
    """regions with classes of their own: sectors of equal angle, rings with equally many devices,
    or none but a Gaussian field over the plane"""
    strength: float = Field(1.0, ge=0, le=1)
    """strength s of the dependence on the place, from 0, without any, to 1, the whole"""
    parts: int = Field(2, ge=1)
    """number of sectors or rings"""
    alpha: float = Field(0.3, gt=0)
    """concentration of the field's Dirichlet distribution; the smaller, the more heterogeneous"""
    length_m: float = Field(50.0, gt=0)
    """correlation length of the field in metres"""

    def assign_samples(self, task: PartitionTask) -> SampleAssignment:
        if task.positions is None:
            raise UserError(
                "data.partition: 'by_place' needs the positions of the devices, which this channel "
                "does not have; use a channel such as umi, or another partition"
            )
        devices, generator = task.devices, task.generator
        for _ in range(100):
            members, parts = task.shuffle_by_class(), []
            affinity = self._draw_affinities(task.positions, len(members), generator)
            odds = 1.0 - self.strength + self.strength * affinity
            for own, share in zip(members, odds.T, strict=True):
                if share.any():
                    sizes = generator.multinomial(len(own), share / share.sum())
                    parts.append((own, np.repeat(np.arange(devices), sizes)))
            index, device = map(np.concatenate, zip(*parts, strict=True))
            assigned = SampleAssignment.group_by_device(index, device, devices)
            if assigned.counts.all():
                return assigned
        raise UserError(
            f"data.partition: 'by_place' leaves one of {devices} devices without samples in each "
            f"of 100 draws; use a smaller strength, fewer parts or devices, or a larger alpha"
        )

    def _draw_affinities(
        self, position: np.ndarray, classes: int, generator: np.random.Generator
    ) -> np.ndarray:
        """Draw the affinities [K, classes] of devices at positions [K, 2] in metres."""
        if self.pattern == "field":
            normal = draw_field(position / self.length_m, classes, generator)
            gamma = special.gammaincinv(self.alpha, special.ndtr(normal)).clip(1e-300)
            return np.asarray(classes * gamma / gamma.sum(1, keepdims=True))
        if self.pattern == "rings":
            rank = np.linalg.norm(position, axis=1).argsort().argsort()
            part = rank * self.parts // len(position)
        else:
            turn = np.arctan2(position[:, 1], position[:, 0]) / (2.0 * np.pi) % 1.0
            part = np.minimum(turn * self.parts, self.parts - 1).astype(np.int64)
        return (part[:, None] == generator.permutation(classes) % self.parts).astype(float)


def draw_field(position: np.ndarray, fields: int, generator: np.random.Generator) -> np.ndarray:
    """Draw standard normal fields over the plane with the correlation exp(-d).

    Parameters
    ----------
    position : ndarray [K, 2]
        Positions in correlation lengths.
    fields : int
        Number of independent fields.
    generator : numpy.random.Generator
        Source of random numbers.

    Returns
    -------
    ndarray [K, fields]
        Sums of cosines with random phases, whose wave vectors have the planar Cauchy distribution,
        because exp(-d) is its characteristic function.
    """
    u, heading, phase = generator.random((3, WAVES, fields))
    radius, heading = np.sqrt(1.0 / (1.0 - u) ** 2 - 1.0), 2.0 * np.pi * heading
    total = np.zeros((len(position), fields))
    for r, angle, start in zip(radius, heading, 2.0 * np.pi * phase, strict=True):
        way = position[:, :1] * np.cos(angle) + position[:, 1:] * np.sin(angle)
        total += np.cos(r * way + start)
    return total * np.sqrt(2.0 / WAVES)
