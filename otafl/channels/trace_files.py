"""Reading of trace files, which contain channels.

A trace is a NumPy file: an array (.npy), or arrays by their names (.npz), as `otafl.channels.trace`
lists them. Nothing that a file contains is run: arrays of Python objects are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from otafl.channels.base import Ground, Positions
from otafl.core.arrays import refuse_wrong, to_numbers, to_single
from otafl.core.errors import UserError
from otafl.core.files import open_regular

AXES = ("round", "device", "antenna", "group")
"""Dimensions of the frequency responses of a trace."""

CONVERT = (
    "save its array of complex numbers by numpy.save; numpy.loadtxt, scipy.io.loadmat or h5py "
    "reads it"
)
"""Remedy for files of other formats."""

FINITE = "expected finite numbers up to 3.4e38, and 0 for a device without a path"
"""Expected numbers of a trace, for messages."""

MAX_BYTES = 1 << 33
"""Largest size of a file's arrays, which are kept in memory."""

GROUND = ("x_m", "y_m", "coverage_db", "roof_m")
"""Arrays of a map."""


@dataclass(frozen=True)
class Responses:
    """Contents of a trace file with R rounds and K devices.

    Parameters
    ----------
    response : ndarray, complex [R, K, A, F] or [R, K, A, L]
        Frequency responses, or amplitudes of paths if there are delays.
    delay_s : ndarray [R or 1, K, L], or None
        Delays of the paths in seconds.
    gain : ndarray [R or 1, K], or None
        Large-scale gains.
    bandwidth_hz : float, optional
        Bandwidth of the responses; None if the file does not state it.
    position_m, base_m : ndarray [R or 1, K, 3] and [3], optional
        Positions of the devices and the base station in metres.
    ground : Ground, optional
        Map of the place.
    """

    response: np.ndarray
    delay_s: np.ndarray | None
    gain: np.ndarray | None
    bandwidth_hz: float | None
    position_m: np.ndarray | None = None
    base_m: np.ndarray | None = None
    ground: Ground | None = None

    def get_positions(self, round: int, devices: np.ndarray) -> Positions | None:
        """Return the positions of the base station and some devices [K] in a round of the file."""
        if self.position_m is None or self.base_m is None:
            return None
        place = self.position_m[round % len(self.position_m)]
        return Positions(place[devices, :2], self.base_m[None, :2], self.ground)


def read(path: str) -> Responses:
    """Read a trace from an untrusted source.

    Raises UserError if the file does not exist, is not a trace, or its numbers are not a channel's.
    """
    if not Path(path).exists():
        raise UserError(f"channel.path: there is no file '{path}'; numpy.save writes one")
    arrays = _read_arrays(path)
    kind, has_paths = ("a", True) if "a" in arrays else ("h", False)
    missing = [name for name in (kind, *["tau_s"] * has_paths) if name not in arrays]
    if missing:
        raise UserError(
            f"channel.path: '{path}' lacks {', '.join(missing)}, and has "
            f"{', '.join(arrays) or 'nothing of a trace'}; {CONVERT}"
        )
    response = _to_responses(arrays[kind], f"channel.path: {kind} of '{path}'", has_paths)
    rounds, devices, _, paths = response.shape
    shapes = {"gain": (rounds, devices), "position_m": (rounds, devices, 3)}
    if has_paths:
        shapes["tau_s"] = rounds, devices, paths
    for name in (*shapes, "base_m", "bandwidth_hz", *GROUND):
        if name in arrays:
            label = f"channel.path: {name} of '{path}'"
            arrays[name] = numbers = to_numbers(arrays[name], label, "real numbers", "iuf")
            if name not in GROUND:  # a place of the map may have no coverage
                to_single(numbers, label, "numbers", ("position",), FINITE)
            if name in ("tau_s", "gain"):
                fault = "negative", "must be at least 0"
                refuse_wrong(numbers < 0, numbers, label, "numbers", *fault)
    fitted = {n: _fit(path, n, arrays[n], shape) for n, shape in shapes.items() if n in arrays}
    base, bandwidth_hz = arrays.get("base_m"), arrays.get("bandwidth_hz")
    if base is not None and base.shape != (3,):
        raise UserError(
            f"channel.path: base_m of '{path}' has the shape {base.shape}; expected (3,)"
        )
    if bandwidth_hz is not None and not (bandwidth_hz.size == 1 and bandwidth_hz.item() > 0):
        raise UserError(
            f"channel.path: bandwidth_hz of '{path}' must be a positive number of hertz"
        )
    return Responses(
        response,
        fitted.get("tau_s"),
        fitted.get("gain"),
        None if bandwidth_hz is None else float(bandwidth_hz.item()),
        fitted.get("position_m"),
        base,
        _read_ground(path, arrays),
    )


def _read_arrays(path: str) -> dict[str, Any]:
    """Return the arrays of a NumPy file, which may not grow beyond `MAX_BYTES`."""
    try:
        with open_regular(path, MAX_BYTES) as opened:
            found = np.load(opened, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {"h": found}
            if sum(one.file_size for one in found.zip.infolist()) > MAX_BYTES:
                raise UserError(
                    f"channel.path: '{path}' has more than {MAX_BYTES >> 30} GiB, and a trace is "
                    "kept in memory; use fewer rounds, devices or groups"
                )
            arrays = dict(found)
    except UserError:
        raise
    except Exception as error:  # NumPy and zipfile parse headers, and raise many kinds
        reason = getattr(error, "strerror", None) or "it is not a NumPy file of numbers"
        raise UserError(f"channel.path: '{path}' cannot be read ({reason}); {CONVERT}") from error
    return {"h": next(iter(arrays.values()))} if len(arrays) == 1 else arrays


def _to_responses(source: Any, label: str, has_paths: bool) -> np.ndarray:
    """Return frequency responses, complex [R, K, A, F], or amplitudes of paths [R, K, A, L]."""
    h = to_numbers(source, label, "complex numbers", "iufc")
    if h.dtype.kind != "c":
        raise UserError(
            f"{label}: got {h.dtype.name} {list(h.shape)}; expected complex numbers: of parts x "
            "and y save x + 1j * y, of magnitudes x + 0j, in decibels 10 ** (x / 20) + 0j"
        )
    if h.ndim not in ((4,) if has_paths else (2, 3, 4)) or not h.size:
        axes = "antenna, path" if has_paths else "[antenna[, group]]"
        raise UserError(f"{label} has the shape {h.shape}; expected (round, device, {axes})")
    to_single(h, label, "numbers", AXES, FINITE)
    return h.reshape((*h.shape, 1, 1)[:4]).astype(np.complex128)


def _read_ground(path: str, arrays: dict[str, Any]) -> Ground | None:
    """Return the map of the place, if the file has it."""
    if not all(name in arrays for name in GROUND):
        return None
    x, y, coverage, roof = (arrays[name] for name in GROUND)
    shape = (y.size, x.size)
    if x.ndim != 1 or y.ndim != 1 or coverage.shape != shape or roof.shape != shape:
        raise UserError(
            f"channel.path: coverage_db and roof_m of '{path}' must have the shape (y, x), {shape}"
        )
    return Ground(x, y, coverage, roof, str(arrays.get("attribution", "")))


def _fit(path: str, name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values with a round dimension, which has length 1 if they had none."""
    if values.shape == shape[1:]:
        values = values[None]
    if values.shape not in (shape, (1, *shape[1:])):
        raise UserError(
            f"channel.path: {name} of '{path}' has the shape {values.shape}; expected {shape} or "
            f"{shape[1:]}"
        )
    return values
