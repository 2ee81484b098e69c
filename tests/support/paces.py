"""Devices whose clock frequencies are chosen, without a scenario."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from support.made_devices import make_hardware

from otafl.core import registry
from otafl.core.contracts import ChannelState, LinkBudget
from otafl.cpu_frequency.base import CpuFrequency, FrequencySetup, Task
from otafl.devices.compute.kinds import Fixed
from otafl.devices.hardware import Hardware
from otafl.uplink.base import OrthogonalUplink


def make_batch_hardware(trials: int, devices: int, **parts: float | np.ndarray) -> Hardware:
    """4e9 operations a second at 1 GHz, down to 0.1 GHz."""
    one = make_hardware(Fixed(flops_per_s=4e9), devices)
    stack = Hardware.stack([one] * trials)
    full = np.ones((trials, devices))
    given = {"frequency_min_hz": 1e8} | parts
    return replace(stack, **{name: value * full for name, value in given.items()})


def make_flat_channel(trials: int, devices: int, seed: int = 0, cells: int = 1) -> ChannelState:
    generator = torch.Generator().manual_seed(seed)
    shape = (trials, devices, 2, 1, cells)
    h = torch.complex(
        *(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    )
    return ChannelState(h * math.sqrt(0.5), torch.ones(trials, devices, dtype=torch.float64))


def compute_link_budget(trials: int, devices: int, snr: float = 10.0) -> LinkBudget:
    """1 MHz, 0.1 W of full power."""
    ones = torch.ones(trials, devices, dtype=torch.float64)
    return LinkBudget(
        budget=snr * ones,
        gain=ones,
        unit_power_w=torch.full((trials,), 0.1 / snr, dtype=torch.float64),
        bandwidth_hz=torch.full((trials,), 1e6, dtype=torch.float64),
        is_physical=torch.zeros(trials, dtype=torch.bool),
    )


def make_task(trials: int, devices: int, flops: float, deadline_s: Any, **parts: Any) -> Task:
    trial, device = np.divmod(np.arange(trials * devices), devices)
    size = len(trial)
    return Task(
        trial=trial,
        device=device,
        flops=np.full(size, flops),
        downlink_s=parts.get("downlink_s", np.full(size, 0.5)),
        deadline_s=np.broadcast_to(deadline_s, size).astype(float),
        num_coordinates=parts.get("reals", 10_000),
        channel=parts.get("channel", make_flat_channel(trials, devices)),
        round=0,
    )


def make_policy(
    name: str,
    trials: int,
    devices: int,
    uplink: OrthogonalUplink | None = None,
    **fields: Any,
) -> CpuFrequency:
    """A choice of the table for the devices of `make_batch_hardware`."""
    setup = FrequencySetup(
        make_batch_hardware(trials, devices), compute_link_budget(trials, devices), uplink
    )
    made: CpuFrequency = registry.make_component(
        "cpu_frequency", registry.load_settings_class("cpu_frequency", name)(**fields), setup
    )
    return made
