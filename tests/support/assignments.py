"""Assignments of levels over devices of given speeds and memories, without a scenario."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from support.made_devices import make_mains_hardware
from support.selections import EstimateFn
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import ChannelState, Cohort, LinkBudget, Submodel, Workload
from otafl.core.rng import Streams
from otafl.devices.hardware import Hardware
from otafl.selection.base import SelectionSetup
from otafl.submodels.assignments import SubmodelAssignment, SubmodelSetup

DOUBLE = torch.float64
K = 8
SIZES = tuple(
    Submodel(
        ratio,
        size,
        size,
        flops_fn=lambda of, m=size: m * of.num_steps * of.effective_batch_size,
        saved_activations=10,
    )
    for ratio, size in ((1.0, 400), (0.5, 200), (0.25, 100))
)


def make_levels(
    name: str,
    speeds: Any = None,
    budget: float = 1.0,
    trials: int = 1,
    memory: Any = np.inf,
    **settings: Any,
) -> SubmodelAssignment:
    """Of `trials` trials of K devices with a band of 1,000 Hz; a round has 2 batches of 5."""
    own = torch.full((trials, K), budget, dtype=DOUBLE)
    one = torch.ones(trials, dtype=DOUBLE)
    link = LinkBudget(own, torch.ones_like(own), one, 1000.0 * one, one.bool())
    streams = Streams([5] * trials, list(range(trials)), dtype=DOUBLE)
    rates = np.ones((trials, K)) if speeds is None else np.asarray(speeds, float).reshape(-1, K)
    hardware = replace(
        Hardware.stack([make_mains_hardware(K)] * trials),
        flops_per_s=rates,
        memory_mb=np.broadcast_to(memory, (trials, K)),
    )
    setup = SubmodelSetup(
        SIZES,
        hardware,
        Workload(num_steps=2, batch_size=5, num_samples=np.full((trials, K), 50.0)),
        link=SelectionSetup(EstimateFn(), link, streams, {}),
    )
    made: SubmodelAssignment = registry.make_component(
        "capacity_levels", registry.load_settings_class("capacity_levels", name)(**settings), setup
    )
    return made


def make_cohort(*devices: list[int]) -> Cohort:
    """Of the devices of each trial; all, if none are given."""
    rows = devices or (list(range(K)),)
    trial = torch.cat([torch.full((len(row),), s) for s, row in enumerate(rows)])
    device = torch.tensor([k for row in rows for k in row])
    weight = torch.ones(len(device), dtype=DOUBLE)
    return Cohort.create(trial, device, weight, tuple(map(len, rows)), K)


def make_state(power: Any = 1.0, trials: int = 1) -> ChannelState:
    """The power gains of the devices, without fading."""
    power = torch.as_tensor(power, dtype=DOUBLE).expand(trials, K)
    h = power.sqrt().to(torch.complex128)[:, :, None, None, None]
    return ChannelState(h, torch.ones_like(power))


def assign(
    assigned: SubmodelAssignment, cohort: Cohort, power: Any = 1.0, round: int = 0
) -> list[int]:
    """Who trains what."""
    got: Tensor = assigned.assign_levels(cohort, round, make_state(power, cohort.num_trials))
    assert got.dtype == torch.int64
    return got.tolist()
