"""Policy by which threads of OpenMP wait for work."""

from __future__ import annotations

import os

_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def choose_wait_policy() -> dict[str, str]:
    """Choose environment variables with which threads sleep while they wait.

    The default of libgomp lets them spin. On a busy machine they then take the processor from the
    threads that they wait for. The variables have to be set before PyTorch is imported.

    Returns
    -------
    dict of str to str
        Variables to add to the environment; none if the user has set one of them.
    """
    if any(name in os.environ for name in _VARIABLES):
        return {}
    return {"OMP_WAIT_POLICY": "passive"}
