"""Modules of compiled loops. Without Numba, and on a GPU, tensor operations take their place."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

Loop = Callable[..., Any]


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
    slow = "draws, sums of energies and training of small networks take up to several times as long"
    warnings.warn(f"Numba is {fault}, so {slow}; {remedy}", RuntimeWarning, stacklevel=2)
    return False


@functools.cache
def load_loops(name: str, device: torch.device) -> ModuleType | None:
    """Return a module of compiled loops; None if tensor operations are to be used."""
    return importlib.import_module(name) if device.type == "cpu" and has_numba() else None


def compile_loop(function: Loop, fastmath: frozenset[str] = frozenset()) -> Loop:
    """Compile a function of arrays at its first call.

    The code is cached beside its source or in the user's cache, if either is writable.

    Parameters
    ----------
    function : callable
        Loop over NumPy arrays.
    fastmath : frozenset of str
        LLVM's flags for inexact floating-point transformations; exact if empty.

    Returns
    -------
    callable
        The compiled function, which releases the interpreter's lock.
    """
    import numba

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    try:
        made: Loop = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        made = numba.njit(**options)(function)
    return made
