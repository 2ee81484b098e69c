"""Modules of compiled loops. Without Numba, and on a GPU, tensor operations take their place."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from pathlib import Path
from types import ModuleType

import torch


@functools.cache
def has_numba() -> bool:
    """Return whether Numba is used: it is installed, and no file of the working folder directs it.

    Warn once if it is not used, and tensor operations serve.
    """
    fault, remedy = "not installed", "install it with `pip install numba`"
    if importlib.util.find_spec("numba") is not None:
        if not Path(".numba_config.yaml").is_file():
            return True
        fault = "not used, because it would obey .numba_config.yaml of the working folder"
        remedy = "move the file away; settings of your own can be variables NUMBA_..."
    text = f"Numba is {fault}, so draws and sums of energies take several times as long"
    warnings.warn(f"{text}; {remedy}", RuntimeWarning, stacklevel=2)
    return False


@functools.cache
def load_loops(name: str, device: torch.device) -> ModuleType | None:
    """Return a module of compiled loops; None if tensor operations are to be used."""
    return importlib.import_module(name) if device.type == "cpu" and has_numba() else None
