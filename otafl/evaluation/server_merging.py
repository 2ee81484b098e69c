"""Values of a trial from those of its servers, which are rows of the stack."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from otafl.results.variables import ROUNDS, SERVER, TRIALS, get_variable

_ALIKE = ("wall_time_s",)


def merge_servers(values: Mapping[str, np.ndarray], num_servers: int) -> dict[str, np.ndarray]:
    """Return the values [S, ...] of S trials from those of their S C servers, [S C, ...].

    Devices are concatenated, [S, C K, ...]. Variables without a device dimension are averaged over
    the servers that have them, or take the largest value if `Variable.of_servers` says so.
    `server_<name>` [S, C] has the value of each server.
    """
    if num_servers == 1:
        return dict(values)
    out = {}
    for name, value in values.items():
        apart = value.reshape(-1, num_servers, *value.shape[1:])
        dims, worst = get_variable(name).dims, get_variable(name).of_servers == "max"
        if "device" in dims and value.ndim > 1:
            out[name] = apart.reshape(len(apart), -1, *value.shape[2:])
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of values that no server has
            out[name] = (np.nanmax if worst else np.nanmean)(apart, 1)
        if dims in (ROUNDS, TRIALS) and name not in _ALIKE:
            out[SERVER + name] = apart
    return out


def merge_events(table: np.ndarray, num_servers: int, num_devices: int, name: str) -> np.ndarray:
    """Return a column of the timelines [S C, events] as one of S trials, [S, C events].

    Devices are numbered consecutively from server to server.
    """
    apart = table.reshape(-1, num_servers, table.shape[1])
    if name == "device":
        apart = apart + num_devices * np.arange(num_servers)[:, None]
    return apart.reshape(len(apart), -1)
