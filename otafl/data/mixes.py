"""Partitions by drawn sizes and by drawn mixes of classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError
from otafl.data.config_partition import DirichletMixConfig, LognormalConfig

Indices = NDArray[np.int64]


def lognormal(
    samples: int, devices: int, config: LognormalConfig, generator: np.random.Generator
) -> list[Indices]:
    """Shuffled samples in parts of log-normal sizes."""
    if devices * config.min_samples > samples:
        raise UserError(
            f"data.partition.min_samples: {devices} devices x {config.min_samples} are more than "
            f"the {samples} samples; a smaller number or fewer devices would do"
        )
    order = generator.permutation(samples)
    return cut_lognormal(order, devices, config.sigma, config.min_samples, generator)


def cut_lognormal(
    members: Indices, parts: int, sigma: float, least: int, generator: np.random.Generator
) -> list[Indices]:
    """The members in order, cut into parts of `least` and a log-normal share of the others; evenly
    if sigma is 0."""
    if sigma == 0:
        return np.array_split(members, parts)
    share = generator.lognormal(0.0, sigma, parts)
    free = len(members) - least * parts
    ends = np.rint(np.cumsum(share) / share.sum() * free).astype(np.int64)
    return np.split(members, (ends + least * np.arange(1, parts + 1))[:-1])


def dirichlet_mix(
    labels: Indices, devices: int, config: DirichletMixConfig, generator: np.random.Generator
) -> list[Indices]:
    """Equally many samples for each device, in random order, of a class mix of its own. Devices
    choose in random order, since those that come last must take what is left."""
    each = config.samples_per_device or len(labels) // devices
    if each * devices > len(labels):
        raise UserError(
            f"data.partition.samples_per_device: {devices} devices x {each} are more than the "
            f"{len(labels)} samples; a smaller number or fewer devices would do"
        )
    members = [generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    given = np.zeros(len(members), np.int64)
    stock = np.array([len(own) for own in members])
    parts: list[Indices] = [np.empty(0, np.int64)] * devices
    for device in generator.permutation(devices):
        count = _counts(each, stock - given, config.alpha, generator)
        pieces = [
            own[start : start + n] for own, start, n in zip(members, given, count, strict=True)
        ]
        given += count
        parts[device] = generator.permutation(np.concatenate(pieces))
    return parts


def _counts(each: int, stock: Indices, alpha: float, generator: np.random.Generator) -> Indices:
    """How many samples of each class a device takes. What a class cannot give is drawn again from
    the others: some parts of a Dirichlet, made to sum to one, are a Dirichlet of their own."""
    taken = np.zeros_like(stock)
    mix = generator.dirichlet(np.full(len(stock), alpha))
    while taken.sum() < each:
        left = stock - taken
        mix = np.where(left > 0, mix, 0.0)
        if mix.sum() == 0.0:  # the others' parts are too small for a float
            some = left > 0
            mix[some] = generator.dirichlet(np.full(some.sum(), alpha))
        wanted = generator.multinomial(each - taken.sum(), mix / mix.sum())
        taken += np.minimum(wanted, left)
    return taken
