"""Modules of compiled loops, which are imported once that pays."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from otafl.core.lazy import torch


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
    text = f"Numba is {fault}, so draws, sums and local steps take several times as long"
    warnings.warn(f"{text}; {remedy}", RuntimeWarning, stacklevel=2)
    return False


class CompiledModule:
    """A module of compiled loops, imported once tensor operations have taken as long as its import.

    A short run ends before. The first run of an installation that does not also waits for the
    compiler, which keeps the code for later ones. Numba is imported once for all
    modules, so the time that they all save counts towards it.

    Parameters
    ----------
    name : str
        Name of the module.

    Attributes
    ----------
    spent_s : float
        Processor seconds that tensor operations on the CPU have taken in its place.
    total_s : float
        Those in the place of all modules.
    """

    LOADING_S: ClassVar[float] = 0.5
    """Processor seconds that importing Numba and a cached module takes, about."""

    CACHED_S: ClassVar[float] = 0.1
    """Processor seconds that importing a cached module takes at most, about."""

    total_s: ClassVar[float] = 0.0

    def __init__(self, name: str) -> None:
        self._name = name
        self.spent_s = 0.0

    @classmethod
    @contextlib.contextmanager
    def load_at_once(cls) -> Iterator[None]:
        """Use all modules without waiting until that pays, within this context."""
        bounds = cls.LOADING_S, cls.CACHED_S
        cls.LOADING_S = cls.CACHED_S = 0.0
        try:
            yield
        finally:
            cls.LOADING_S, cls.CACHED_S = bounds

    def count_time(self, began_s: float, share: float = 1.0) -> None:
        """Add a share of this thread's time since `began_s` to the time without the module."""
        spent_s = share * (time.thread_time() - began_s)
        self.spent_s += spent_s
        CompiledModule.total_s += spent_s

    def get(self, device: torch.device) -> ModuleType | None:
        """Return the module, or None if tensor operations are to be used."""
        if device.type != "cpu" or self.spent_s < self.CACHED_S:
            return None
        if max(self.spent_s, self.total_s) < self.LOADING_S or not has_numba():
            return None
        return import_loops(self._name)


@functools.cache
def import_loops(name: str) -> ModuleType:
    """Import a module of compiled loops, which needs Numba, or return it."""
    return importlib.import_module(name)
