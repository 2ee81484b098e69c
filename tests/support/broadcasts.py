"""Broadcasts to some devices of two trials."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Broadcast, Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.downlink.base import DownlinkSetup

S, K = 2, 4


DOUBLE = torch.float64


RATE_BPS = np.array([1e6, 2e6])


BANDWIDTH_HZ = [1e5, 4e5]


SNR_DB = [10.0, 0.0]


def make_setup() -> DownlinkSetup:
    table, row = torch.ones(S, K, dtype=DOUBLE), torch.ones(S, dtype=DOUBLE)
    bandwidth = torch.tensor(BANDWIDTH_HZ, dtype=DOUBLE)
    budget = LinkBudget(table, table, row, bandwidth, row.bool())
    snr_db = torch.tensor(SNR_DB, dtype=DOUBLE)
    hyper = {"snr_db": snr_db, "snr_growth": torch.zeros_like(snr_db)}
    return DownlinkSetup(RATE_BPS, budget, Streams([2, 2], [0, 1], dtype=DOUBLE), hyper)


def make_cohort() -> Cohort:
    """Devices 0, 1, 3 of the first trial, 2 of the second."""
    trial, device = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 3, 2])
    return Cohort.create(trial, device, torch.full((4,), 0.25, dtype=DOUBLE), (3, 1), K)


def draw_normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(3))


def make_shared() -> Broadcast:
    """Six and four reals, and three integers."""
    count = torch.arange(3 * S).view(S, 3)
    return Broadcast(
        {"a": 3.0 * draw_normal(S, 2, 3), "b": 0.1 * draw_normal(S, 4), "count": count}
    )


def make_per_device() -> Broadcast:
    level = torch.arange(1.0, 5.0, dtype=DOUBLE)[:, None]
    return Broadcast({"a": level * draw_normal(4, 5)}, per_device=True)
