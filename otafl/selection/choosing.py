"""Choose devices by keys: the steps that selections share."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Cohort
from otafl.core.rng import Streams, purpose

KEYS = purpose("selection", __name__)
SENDERS = purpose("senders", __name__)


def lowest(
    key: np.ndarray, free: np.ndarray, wanted: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the `wanted` free devices (of each trial, [S]) with the lowest keys [S, K], ties by
    number.

    Returns
    -------
    Who is chosen, [S, K] bool; and the first devices in that order [S, most], of which some are not
    chosen where fewer are free or wanted.
    """
    wanted = np.broadcast_to(wanted, len(free))
    order = np.where(free, key, np.inf).argsort(1, kind="stable")[:, : wanted.max(initial=0)]
    chosen = np.zeros_like(free)
    np.put_along_axis(chosen, order, np.arange(order.shape[1]) < wanted[:, None], 1)
    return chosen & free, order


def some_of(cohort: Cohort, wanted: int, round: int, streams: Streams) -> Tensor:
    """Draw so many of each trial's rows, [N] bool, every set equally likely; all where there are no
    more."""
    key = streams.device_uniform(SENDERS, round, cohort.trial, cohort.device, (1,)).squeeze(1)
    order = key.argsort()
    order = order[cohort.trial[order].argsort(stable=True)]  # by trial, then by key
    first = cohort.rows_of.long().cumsum(0) - cohort.rows_of.long()
    place = torch.arange(cohort.size, device=key.device) - first[cohort.trial]
    return torch.zeros_like(cohort.sends).scatter_(0, order, place < wanted)


def random_key(streams: Streams, round: int, devices: int) -> np.ndarray:
    """Draw keys [S, K] uniform in (0, 1)."""
    return np.asarray(streams.uniform(KEYS, round, (devices,)).cpu())


def host(values: Tensor) -> np.ndarray:
    """Return a tensor as a NumPy array of doubles."""
    return np.asarray(values.detach().to("cpu", torch.float64))
