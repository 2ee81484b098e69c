"""Motion of the devices of a cell along paths from a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from otafl.channels import path_files
from otafl.core.errors import UserError
from otafl.core.problems import Problem, make_problem
from otafl.core.settings import Settings


class TraceMobility(Settings):
    """Motion along the paths of a file, at the time of the simulated clock.

    Positions are interpolated between those of the file. A device is present from its first
    position to its last one. With several servers, the one with the strongest mean gain serves it.
    """

    name: Literal["trace"] = "trace"
    path: str = Field(min_length=1)
    """CSV file with the columns time_s, device, x_m, y_m and optionally z_m, or floating-car data
    of SUMO (.xml)"""
    origin_m: tuple[float, float] = (0.0, 0.0)
    """coordinates of the first server in the file"""
    start_s: float = 0.0
    """time in the file at which the simulation starts"""
    margin_db: float = Field(3.0, ge=0, le=300)
    """margin in dB by which another server's mean gain must exceed the serving one's for a
    handover"""
    measure_every_s: float = Field(1.0, gt=0)
    """seconds between two measurements of the mean gains for a handover"""

    def check(self, scenario: Any) -> Iterable[Problem]:
        """Return conflicts with parts of their own presence, and with the number of servers."""
        topology, is_private = scenario.topology, scenario.privacy.clip is not None
        timed, several = scenario.devices.availability.name, topology.count(scenario) > 1
        for key, is_given, text in (
            ("devices.availability", timed != "always", "presence follows from paths; use always"),
            ("topology", topology.name == "graph", "a graph's devices have no paths; use star"),
            ("privacy.clip", several and is_private, "no account follows a device; use one server"),
        ):
            if is_given:
                yield make_problem(text, key, "channel.mobility")

    def read_paths(self, devices: int, height_m: float, device: torch.device) -> DevicePaths:
        """Read the paths of the file's first devices.

        Parameters
        ----------
        devices : int
            Number of devices, K.
        height_m : float
            Height of devices without one.
        device : torch.device
            Device of the tensors.

        Returns
        -------
        DevicePaths
            Paths relative to the first server, with times from the start of the simulation.

        Raises
        ------
        UserError
            If the file cannot be read, or has fewer devices.
        """
        rows = path_files.read_paths(self.path)
        if len(rows) < devices:
            raise UserError(
                f"{path_files.KEY}: '{self.path}' has {len(rows)} devices with two positions or "
                f"more, and the scenario {devices}; use a smaller devices.count"
            )
        most = max(map(len, rows[:devices]))
        padded = [np.pad(own, ((0, most - len(own)), (0, 0)), "edge") for own in rows[:devices]]
        table = np.stack(padded) - [self.start_s, *self.origin_m, 0.0]
        count = np.array([len(own) for own in rows[:devices]])[:, None]
        time_s = np.where(np.arange(most) < count, table[..., 0], np.inf)
        position = np.where(np.isnan(table[..., 1:]), height_m, table[..., 1:])
        return DevicePaths(*(torch.from_numpy(part).to(device) for part in (time_s, position)))


class DevicePaths:
    """Paths of K devices with up to M positions.

    Parameters
    ----------
    time_s : Tensor, float64 [K, M]
        Times of the positions in ascending order, inf after a device's last one.
    position : Tensor, float64 [K, M, 3]
        Positions in metres, of which the last one is repeated.
    """

    def __init__(self, time_s: Tensor, position: Tensor) -> None:
        self.time_s, self.position = time_s, position

    @property
    def presence_s(self) -> np.ndarray:
        """Seconds [K, 2] from which and until which each device is present."""
        last = torch.where(self.time_s.isinf(), -torch.inf, self.time_s).amax(1)
        return np.asarray(torch.stack([self.time_s[:, 0], last], 1).cpu())

    def compute_positions(self, time_s: Tensor) -> Tensor:
        """Compute positions by linear interpolation.

        Parameters
        ----------
        time_s : Tensor, float64 [R, U]
            Times in seconds.

        Returns
        -------
        Tensor, float64 [R, U, K, 3]
            Positions, before and after a path those of its ends.
        """
        wanted = time_s.reshape(1, -1).expand(len(self.time_s), -1).contiguous()
        after = torch.searchsorted(self.time_s, wanted, right=True)
        after = after.clamp(1, self.time_s.shape[1] - 1)
        first, second = self.time_s.gather(1, after - 1), self.time_s.gather(1, after)
        share = ((wanted - first) / (second - first)).clamp(0.0, 1.0)
        row = torch.arange(len(after), device=after.device)[:, None]
        start, end = self.position[row, after - 1], self.position[row, after]
        place = start + share[..., None] * (end - start)
        return place.transpose(0, 1).reshape(*time_s.shape, -1, 3)

    def spread_over_time(self, share: Tensor) -> Tensor:
        """Map shares [...] in (0, 1) to times between the first position and the last one."""
        first, last = self.presence_s[:, 0].min(), self.presence_s[:, 1].max()
        return first + (last - first) * share
