"""Selections over channels of given states, without a scenario."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import ChannelState, Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.selection.base import Selection, SelectionSetup

S, K = 2, 5
DOUBLE = torch.float64


class EstimateFn:
    """Devices are believed to have the channel that is given, or else the true one."""

    variance: Tensor | None = None
    pilot_symbols = 0

    def __init__(self, h_hat: Tensor | None = None) -> None:
        self.h_hat = h_hat

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h if self.h_hat is None else self.h_hat


def make_selection(name: str, believed: Tensor | None = None, **hyper: list[float]) -> Selection:
    """Of S trials with budgets 1, 2, .. K, doubled in the second."""
    budget = torch.arange(1.0, K + 1, dtype=DOUBLE).expand(S, -1) * torch.tensor([[1.0], [2.0]])
    ones = torch.ones(S, dtype=DOUBLE)
    link = LinkBudget(budget, torch.ones_like(budget), ones, ones, ones.bool())
    settings = {key: torch.tensor(values, dtype=DOUBLE) for key, values in hyper.items()}
    setup = SelectionSetup(
        EstimateFn(believed), link, Streams([1, 1], [0, 1], dtype=DOUBLE), settings
    )
    made: Selection = registry.make_component(
        "selection", registry.load_settings_class("selection", name)(), setup
    )
    return made


def make_state(power: Any, gain: Any = 1.0) -> ChannelState:
    """Of |h|^2 [S, K] or [S, K, A, 1, F], with some phase."""
    power = torch.as_tensor(power, dtype=DOUBLE)
    power = power if power.dim() == 5 else power[:, :, None, None, None]
    phase = torch.arange(power.numel(), dtype=DOUBLE).view_as(power)
    return ChannelState(torch.polar(power.sqrt(), phase), torch.as_tensor(gain) + torch.zeros(S, K))


ALL = np.ones((S, K), bool)
FLAT = make_state(torch.ones(S, K))


def to_sets(chosen: np.ndarray) -> list[list[int]]:
    assert chosen.shape == (S, K)
    assert chosen.dtype == bool
    return [np.nonzero(row)[0].tolist() for row in chosen]


def make_cohort(sends: list[bool] | None = None) -> Cohort:
    """Devices 0, 2, 3 of the first trial, 1 and 4 of the second."""
    trial, device = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 2, 3, 1, 4])
    made = Cohort.create(trial, device, torch.ones(5, dtype=DOUBLE), (3, 2), K)
    if sends is None:
        return made
    made.transmit_mask.copy_(torch.tensor(sends))
    return made
