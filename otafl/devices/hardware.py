"""What the devices are made of: how fast they compute, and what their parts draw from what battery.

Nothing here knows of time; a device has the same hardware for the whole of a trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from otafl.devices.config_drawn import CsvComputeConfig, DrawnComputeConfig
from otafl.devices.config_hardware import (
    QUANTITIES,
    ClassesComputeConfig,
    FixedComputeConfig,
    LognormalComputeConfig,
)
from otafl.devices.config_presets import (
    EdgeGpuComputeConfig,
    McuComputeConfig,
    PhoneComputeConfig,
)
from otafl.devices.drawn import Columns, drawn, from_file

AnyComputeConfig = (
    FixedComputeConfig
    | LognormalComputeConfig
    | ClassesComputeConfig
    | DrawnComputeConfig
    | CsvComputeConfig
    | McuComputeConfig
    | PhoneComputeConfig
    | EdgeGpuComputeConfig
)
"""What `devices.compute` may hold, told apart by `name`."""


@dataclass(frozen=True)
class Hardware:
    """Float64 of one shape, [K] for a trial or [S, K] for a stack.

    flops_per_s: operations a second at frequency_hz, the highest clock frequency;
    frequency_min_hz: the lowest. kappa: J s^2 / cycle^3. memory_mb: MiB for training, inf where it
    is no bound. battery_j: capacity, inf on mains; charge_j: at the start; restart_j: charge at
    which a device whose battery was empty comes back. harvest_w: power that charges the battery.
    circuit_w: drawn by the radio while it transmits, beside what it radiates over `efficiency`.
    receive_w: while it receives. idle_w: while a device at work waits for its slot. sleep_w: while
    it has nothing to do. power_db: transmit power over that of the channel's settings.
    """

    flops_per_s: np.ndarray
    frequency_hz: np.ndarray
    frequency_min_hz: np.ndarray
    kappa: np.ndarray
    memory_mb: np.ndarray
    battery_j: np.ndarray
    charge_j: np.ndarray
    restart_j: np.ndarray
    harvest_w: np.ndarray
    circuit_w: np.ndarray
    receive_w: np.ndarray
    idle_w: np.ndarray
    sleep_w: np.ndarray
    efficiency: np.ndarray
    power_db: np.ndarray

    @staticmethod
    def stack(trials: Sequence[Hardware]) -> Hardware:
        """The hardware [K] of S trials as [S, K]."""
        return Hardware(
            *(np.stack([getattr(one, part.name) for one in trials]) for part in fields(Hardware))
        )

    def rows(self, *at: np.ndarray) -> Hardware:
        """The named entries of each array, as of [S, K] the pairs trial [N], device [N]."""
        return Hardware(*(getattr(self, part.name)[at] for part in fields(Hardware)))

    @property
    def mains(self) -> bool:
        """Whether no device has a battery."""
        return bool(np.isinf(self.battery_j).all())


def devices_of(config: AnyComputeConfig, devices: int, generator: np.random.Generator) -> Hardware:
    """The hardware [K] of a trial's devices. The first devices of a larger population are those of
    a smaller one under the same generator. UserError for a file that cannot be read."""
    columns = _columns(config, devices, generator)
    frequency = columns["flops_per_s"] / columns["flops_per_cycle"]
    battery = columns["battery_j"]
    mains = np.isinf(battery)
    capacity = np.where(mains, 0.0, battery)
    return Hardware(
        flops_per_s=columns["flops_per_s"],
        frequency_hz=frequency,
        frequency_min_hz=frequency * columns["frequency_min_share"],
        kappa=columns["kappa"],
        memory_mb=columns["memory_mb"],
        battery_j=battery,
        charge_j=np.where(mains, np.inf, capacity * columns["charge"]),
        restart_j=capacity * columns["restart"],
        harvest_w=columns["harvest_w"],
        circuit_w=columns["circuit_w"],
        receive_w=columns["receive_w"],
        idle_w=columns["idle_w"],
        sleep_w=columns["sleep_w"],
        efficiency=columns["efficiency"],
        power_db=columns["power_db"],
    )


def _columns(config: AnyComputeConfig, devices: int, generator: np.random.Generator) -> Columns:
    """The quantities of the devices, inf for what has no bound, and their flops_per_s."""
    if isinstance(config, DrawnComputeConfig):
        return drawn(config, devices, generator)
    columns = {name: np.full(devices, _number(getattr(config, name))) for name in QUANTITIES}
    if isinstance(config, CsvComputeConfig):
        return columns | from_file(config, devices)
    if isinstance(config, FixedComputeConfig):
        speed = np.full(devices, config.flops_per_s)
    elif isinstance(config, LognormalComputeConfig):
        z = generator.standard_normal(devices)
        speed = config.median_flops_per_s * np.exp(config.sigma * z)
    elif isinstance(config, ClassesComputeConfig):
        of = _classes(config, devices, generator)
        speed = np.array([c.flops_per_s for c in config.classes])[of]
        for name in QUANTITIES:
            own = [getattr(c, name) for c in config.classes]
            if any(value is not None for value in own):
                section = _number(getattr(config, name))
                columns[name] = np.array([section if one is None else one for one in own])[of]
    elif isinstance(config, PhoneComputeConfig):
        span = config.frequency_max_hz - config.frequency_min_hz
        frequency = config.frequency_min_hz + span * generator.random(devices)
        speed = config.flops_per_cycle * frequency
    else:
        speed = columns["flops_per_cycle"] * config.frequency_hz
    return columns | {"flops_per_s": speed}


def _number(value: float | None) -> float:
    return np.inf if value is None else value


def _classes(
    config: ClassesComputeConfig, devices: int, generator: np.random.Generator
) -> np.ndarray:
    """[K] int64: each device's class."""
    shares = np.array([c.share for c in config.classes])
    shares = shares / shares.sum()
    if config.assignment == "random":
        of = np.searchsorted(np.cumsum(shares), generator.random(devices), side="right")
        return np.minimum(of, len(shares) - 1)  # round-off may leave the sum below 1
    of = np.empty(devices, dtype=np.int64)
    dealt = np.zeros(len(shares))
    for device in range(devices):
        behind = (device + 1) * shares - dealt
        of[device] = np.argmax(behind)
        dealt[of[device]] += 1
    return of
