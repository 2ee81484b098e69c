"""Broadcasts to devices of two trials: of random reals, and of 320 bits that may be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core.contracts import Broadcast, Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.downlink.base import BroadcastDelivery, DownlinkSetup
from otafl.downlink.downlinks import DigitalDownlink

S, K = 2, 6


DOUBLE = torch.float64


RATE_BPS = np.array([3.2e3, 6.4e3])


BANDWIDTH_HZ = [1e3, 4e3]


SNR_DB = [10.0, 0.0]


TEN = Broadcast({"a": torch.ones(S, 7, dtype=DOUBLE), "count": torch.ones(S, 3).long()})
"""320 bits: 0.1 s and 0.05 s."""


def make_setup(**hyper: list[float]) -> DownlinkSetup:
    fields = {
        "snr_db": SNR_DB,
        "snr_growth": [0.0] * S,
        "outage": [0.1] * S,
        "loss": [0.0] * S,
    } | hyper
    table, row = torch.ones(S, K, dtype=DOUBLE), torch.ones(S, dtype=DOUBLE)
    bandwidth = torch.tensor(BANDWIDTH_HZ, dtype=DOUBLE)
    budget = LinkBudget(table, table, row, bandwidth, row.bool())
    numbers = {name: torch.tensor(values, dtype=DOUBLE) for name, values in fields.items()}
    return DownlinkSetup(RATE_BPS, budget, Streams([2, 2], [0, 1], dtype=DOUBLE), numbers)


def make_cohort(first: list[int], second: list[int]) -> Cohort:
    trial = torch.tensor([0] * len(first) + [1] * len(second))
    device = torch.tensor(first + second)
    weight = torch.ones(len(trial), dtype=DOUBLE)
    return Cohort.create(trial, device, weight, (len(first), len(second)), K)


FOUR = make_cohort([0, 1, 3], [2])


FULL = make_cohort(list(range(K)), list(range(K)))


def send(
    who: Cohort = FOUR,
    broadcast: Broadcast = TEN,
    round: int = 0,
    numbers: dict[str, list[float]] | None = None,
    **config: Any,
) -> BroadcastDelivery:
    made = DigitalDownlink(DigitalDownlink.Settings(**config), make_setup(**(numbers or {})))
    return made.send(broadcast, who, round)


def get_seconds(arrival: BroadcastDelivery) -> np.ndarray:
    assert arrival.row_seconds is not None
    return arrival.row_seconds


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
