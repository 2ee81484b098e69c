"""Compilation of loops over arrays by Numba.

Modules of compiled loops import this one, so they are imported only where Numba is installed, see
`otafl.core.compiled_module`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
from numba.extending import intrinsic

Loop = Callable[..., Any]

make_intrinsic: Any = intrinsic
"""Decorator of Numba, whose annotation keeps the typing context among a call's arguments."""


@make_intrinsic
def multiply_add(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a b + c with one rounding, as torch's vectorised loops do. For compiled loops."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return a(a, b, c), generate


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


def drop_stale(loop: Any, *modules: ModuleType) -> None:
    """Delete the cached code of a loop that is older than a module whose loops it calls.

    Numba compares only the loop's own file, but the code contains that of the loops it calls.
    """
    newest_s = max(Path(str(one.__file__)).stat().st_mtime for one in modules)
    own = Path(str(inspect.getsourcefile(loop.py_func)))
    for index in Path(str(loop.stats.cache_path)).glob(f"{own.stem}.{loop.__name__}-*.nbi"):
        if index.stat().st_mtime < newest_s:
            index.unlink(missing_ok=True)
