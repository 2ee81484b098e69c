"""Environment of a result: versions of programs, the commit of otafl, and the processor."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import UserError

WITH_CHANGES = " with changes"
"""Mark of a commit whose files were edited."""
GIT_TIMEOUT_S = 10.0
"""Seconds that git gets on a slow file system."""


@functools.cache
def get_versions() -> dict[str, str]:
    """Return the versions of otafl and of the packages that its numbers depend on."""
    names = {"sionna": ("sionna-no-rt", "sionna")}
    packages = ("otafl", "torch", "sionna", "numpy", "xarray")
    return {name: _find_version(*names.get(name, (name,))) for name in packages}


@functools.cache
def find_commit() -> str | None:
    """Find the commit of otafl's source, where it runs from a checkout of its git repository.

    Git is called once in a program, and not for an installed package.

    Returns
    -------
    str or None
        The commit in hexadecimal, and ` with changes` after it if a file of the package differs
        from the commit. None for an installed package, without git, and where git refuses.
    """
    package = Path(__file__).parents[1]
    checkout = package.parent
    project = checkout / "pyproject.toml"
    try:
        if not (checkout / ".git").exists() or '\nname = "otafl"\n' not in project.read_text(
            "utf-8"
        ):
            return None
        # a hook of git sets GIT_DIR, and a monitor of files is a program
        options = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
        found = subprocess.run(
            [*options, "status", "--porcelain=v2", "--branch", "--", package.name],
            cwd=checkout,
            env={name: value for name, value in os.environ.items() if name[:4] != "GIT_"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    lines = found.stdout.splitlines()
    commit = re.search(r"^# branch\.oid ([0-9a-f]{40,64})$", found.stdout, re.MULTILINE)
    if commit is None:  # a repository without commits
        return None
    return commit[1] + (WITH_CHANGES if any(not line.startswith("#") for line in lines) else "")


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
