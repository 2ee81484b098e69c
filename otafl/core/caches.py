"""Folders in which libraries keep compiled code, which they run without asking."""

from __future__ import annotations

import os
from pathlib import Path

_INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


def choose_caches() -> dict[str, str]:
    """Choose environment variables that keep others from giving compiled code to libraries.

    Numba would take its folder from `.numba_config.yaml` of the working folder; an empty variable
    comes first and means Numba's own default. PyTorch's Inductor and onnxruntime would use names
    in the shared temporary folder that others can create first.

    Returns
    -------
    dict of str to str
        Variables to add to the environment; those that the user has set are left out.
    """
    chosen = {"NUMBA_CACHE_DIR": "", "NUMBA_CACHE_LOCATOR_CLASSES": "", "ORT_DISABLE_TELEMETRY": "1"}
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if os.access(home if home.exists() else home.parent, os.W_OK):
        chosen[_INDUCTOR] = str(home / "torchinductor")
    return {name: value for name, value in chosen.items() if name not in os.environ}
