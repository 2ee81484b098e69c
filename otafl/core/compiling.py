"""Compilation of loops over arrays by Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.extending import intrinsic

Loop = Callable[..., Any]

make_intrinsic: Any = intrinsic
"""Numba's decorator, whose annotation keeps the typing context among the arguments of a call."""


def _build_multiply_add(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return the types and the code of `multiply_add`, as Numba's intrinsics do."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return a(a, b, c), generate


multiply_add: Loop = intrinsic(_build_multiply_add)
"""Function a, b, c -> a b + c with one rounding, for compiled loops; torch's loops have it too."""


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


@make_intrinsic
def multiply_add(typing: Any, x: Any, y: Any, total: Any) -> Any:
    """Compute x y + total with one rounding in a compiled loop, for numbers of one type."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return total(total, total, total), generate
