"""Environment of a result: versions of programs, and the processor."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import UserError


@functools.cache
def get_versions() -> dict[str, str]:
    """Return the versions of otafl and of the packages that its numbers depend on."""
    names = {"sionna": ("sionna-no-rt", "sionna")}
    packages = ("otafl", "torch", "sionna", "numpy", "xarray")
    return {name: _find_version(*names.get(name, (name,))) for name in packages}


def _find_version(*names: str) -> str:
    """Return the version of the first distribution of these names that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"


def check_format(path: Path, written: Any, known: int, version: Any) -> None:
    """Raise UserError for a file of a later format than is known; `version` of otafl wrote it."""
    if isinstance(written, int | np.integer) and written > known:
        raise UserError(
            f"{path}: was written by otafl {version} in a format that this one "
            f"({get_versions()['otafl']}) does not know; update otafl to read it"
        )


def get_device_name(device: str) -> str:
    """Name the processor that computed, as its maker calls it."""
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
