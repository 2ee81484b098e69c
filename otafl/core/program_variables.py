"""Environment variables of the programs of otafl: the command line and its workers."""

from __future__ import annotations

import os
from pathlib import Path

_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def choose_variables() -> dict[str, str]:
    """Choose environment variables that have to be set before libraries are imported.

    OpenMP's threads sleep while they wait. The default of libgomp lets them spin, and on a busy
    machine they then take the processor from the threads that they wait for.

    Libraries find no compiled code of other people. Numba would look where `.numba_config.yaml` of
    the working folder says; an empty variable comes first and means Numba's default. PyTorch's
    Inductor and onnxruntime would use names in the temporary folder that others can take first.

    Returns
    -------
    dict of str to str
        Variables to add to the environment; those that the user has set are left out.
    """
    chosen = dict.fromkeys(("NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES"), "")
    chosen["ORT_DISABLE_TELEMETRY"] = "1"
    if not any(name in os.environ for name in _WAITING):
        chosen["OMP_WAIT_POLICY"] = "passive"
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    if os.access(home if home.exists() else home.parent, os.W_OK):
        chosen["TORCHINDUCTOR_CACHE_DIR"] = str(home / "torchinductor")
    return {name: value for name, value in chosen.items() if name not in os.environ}
