"""Modules of compiled loops. Without Numba, and on a GPU, tensor operations take their place."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from types import ModuleType

from otafl.core.lazy import torch


@functools.cache
def has_numba() -> bool:
    """Return whether Numba is installed; warn once if it is not."""
    found = importlib.util.find_spec("numba") is not None
    if not found:
        text = "Numba is not installed, so draws and sums of energies take several times as long"
        warnings.warn(f"{text}; install it with `pip install numba`", RuntimeWarning, stacklevel=2)
    return found


@functools.cache
def load_loops(name: str, device: torch.device) -> ModuleType | None:
    """Return a module of compiled loops; None if tensor operations are to be used."""
    return importlib.import_module(name) if device.type == "cpu" and has_numba() else None
