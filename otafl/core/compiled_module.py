"""Modules of compiled loops, which are imported once that pays."""

from __future__ import annotations

import importlib
import time
from types import ModuleType

from otafl.core.lazy import torch


class CompiledModule:
    """A module of compiled loops, imported once tensor operations have taken as long as its import.

    A short run ends before, so it never waits for the compiler.

    Parameters
    ----------
    name : str
        Name of the module.

    Attributes
    ----------
    spent_s : float
        Processor seconds that tensor operations on the CPU have taken in its place.
    """

    LOADING_S = 0.5
    """Processor seconds that importing Numba and a cached module takes, about."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None
        self.spent_s = 0.0

    def count_time(self, began_s: float) -> None:
        """Add the time of this thread since `began_s` to the time spent without the module."""
        self.spent_s += time.thread_time() - began_s

    def get(self, device: torch.device) -> ModuleType | None:
        """Return the module, or None if tensor operations are to be used."""
        if device.type != "cpu" or self.spent_s < self.LOADING_S:
            return None
        if self._module is None:  # the import system takes as long as a small pass
            self._module = importlib.import_module(self._name)
        return self._module
