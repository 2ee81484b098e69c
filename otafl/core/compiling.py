"""Compilation of loops over arrays by Numba.

Modules of compiled loops import this one, so they are imported only where Numba is installed, see
`otafl.core.compiled_module`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

Loop = Callable[..., Any]


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
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    try:
        made: Loop = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        made = numba.njit(**options)(function)
    return made
