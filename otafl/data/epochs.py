"""Minibatches of local work that is given in epochs, passes over all samples of a device.

In each epoch a device puts its n samples in a new random order, and takes them in minibatches of
B. The last minibatch has the samples that are left. The order depends only on seed, trial, device,
round, epoch and draw.

References
----------
McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", Algorithm 1: ClientUpdate.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.core.contracts.learning import count_epoch_steps
from otafl.core.rng import (
    Round,
    Streams,
    declare_family,
    derive_words,
    list_rounds,
    make_step_key,
)

EPOCH = declare_family("epoch", __name__)

_LAST = 2**63 - 1


@dataclass(frozen=True)
class EpochPlan:
    """Samples that devices pass over in a round.

    Parameters
    ----------
    index : Tensor, int64 [S * K, n_max]
        Indices of each device's samples, padded.
    count : Tensor, int64 [S * K]
        Number of samples of each device, n.
    batch_size : int
        Samples of a minibatch, B.
    num_epochs : int
        Passes over the samples in a round, E.
    """

    index: Tensor
    count: Tensor
    batch_size: int
    num_epochs: int

    @functools.cached_property
    def host_count(self) -> np.ndarray:
        """The `count` [S * K] on the host, copied once."""
        count: np.ndarray = self.count.cpu().numpy()
        return count

    def count_steps(self, cohort: Cohort) -> np.ndarray:
        """Count the local steps of the cohort's rows, E ceil(n / B), int64 [N]."""
        samples = self.host_count[cohort.host_flat_index]
        return count_epoch_steps(samples, self.batch_size, self.num_epochs).astype(np.int64)


class EpochBatches:
    """Minibatches of rows in a round, which all take the same number of local steps.

    Parameters
    ----------
    plan : EpochPlan
        Samples of the devices.
    streams : Streams
        Random streams of the S trials.
    round : int
        Round.
    cohort : Cohort
        The n rows.

    Raises
    ------
    ValueError
        If the numbers of local steps of the rows differ.
    """

    def __init__(self, plan: EpochPlan, streams: Streams, round: Round, cohort: Cohort) -> None:
        steps = np.unique(plan.count_steps(cohort))
        if len(steps) > 1:
            raise ValueError(
                f"local steps of the rows: got {steps.tolist()}; rows of a chunk must take the "
                "same number"
            )
        self.num_steps = int(steps[0]) if len(steps) else plan.num_epochs
        self._per_epoch = self.num_steps // plan.num_epochs
        self._width = self._per_epoch * plan.batch_size
        self._is_full = bool((plan.host_count[cohort.host_flat_index] == self._width).all())
        self._plan, self._streams, self._round, self._cohort = plan, streams, round, cohort
        self._orders: dict[int, tuple[int, Tensor]] = {}

    def draw(self, step: int, draw: int) -> tuple[Tensor, Tensor | None]:
        """Return the samples of a local step, and their weights.

        Parameters
        ----------
        step : int
            Local step.
        draw : int
            Number of an independent sequence of orders.

        Returns
        -------
        sample : Tensor, int64 [n, B]
            Indices of the samples; the first sample of the order is the padding.
        weight : Tensor [n, B] or None
            Weight 1/m on the m samples of a minibatch and 0 on the padding; None if all are B.
        """
        epoch, place = divmod(step, self._per_epoch)
        if self._orders.get(draw, (-1, None))[0] != epoch:
            self._orders[draw] = epoch, self._draw_order(epoch, draw)
        size = self._plan.batch_size
        start = place * size
        sample = self._orders[draw][1][:, start : start + size]
        if self._is_full or place < self._per_epoch - 1:
            return sample, None
        left = self._plan.count[self._cohort.flat_index] - start
        return sample, compute_sample_weights(left, size, self._streams.dtype)

    def _draw_order(self, epoch: int, draw: int) -> Tensor:
        """Draw the order of all samples in an epoch, int64 [n, T B] with padding.

        Sorting by 64 random bits gives every order with the same probability, because two equal
        words are too unlikely to occur.
        """
        plan, cohort, row = self._plan, self._cohort, self._cohort.flat_index
        purpose = EPOCH / draw if draw else EPOCH
        tick = list_rounds(make_step_key(self._round, epoch), 1, row.device)
        key = self._streams.derive_device_keys(purpose, tick, cohort.trial, cohort.device)[0]
        place = torch.arange(self._width, device=row.device)
        held = place < plan.count[row][:, None]
        words = derive_words(key, 0, self._width).masked_fill_(~held, _LAST)
        order = words.argsort(dim=1, stable=True)
        order = torch.where(held, order, order[:, :1])
        return plan.index.take(order + row[:, None] * plan.index.shape[1])


def list_positions(count: Tensor, width: int) -> Tensor:
    """Return the positions 0..count-1 of each row [n], then 0, int64 [n, width]."""
    order = torch.arange(width, device=count.device)
    return torch.where(order < count[:, None], order, 0)


def compute_sample_weights(count: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return 1/count in the first count [n] of `width` positions and 0 after them, [n, width]."""
    held = torch.arange(width, device=count.device) < count[:, None]
    return held.to(dtype) / count[:, None]
