"""Arrays of numbers that users bring, converted without a silent change of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import UserError

_MAX_WHOLE = 1 << 24
"""Bound below which float32 represents every whole number."""


def to_numbers(values: Any, label: str, wanted: str, kinds: str = "biuf") -> NDArray[Any]:
    """Return an array of the numbers that a user gave.

    Parameters
    ----------
    values : array-like
        Array, nested list, pandas frame or tensor.
    label : str
        Name of the array, for messages.
    wanted : str
        Expected values and the remedy, for messages.
    kinds : str
        NumPy's kinds of permitted types: bool, int, unsigned, float, complex.

    Returns
    -------
    ndarray
        The numbers in their own type.

    Raises
    ------
    UserError
        If the values make no array, have another type, or some are masked.
    """
    if np.ma.isMaskedArray(values):
        refuse_wrong(np.ma.getmaskarray(values), values, label, "values", "masked", wanted)
    try:
        numbers = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors of a GPU
        raise UserError(f"{label}: cannot be an array ({error}); expected {wanted}") from error
    if numbers.dtype.kind not in kinds:
        raise UserError(f"{label}: got the type {numbers.dtype.name}; expected {wanted}")
    return numbers


def to_single(
    numbers: NDArray[Any],
    label: str,
    noun: str,
    axes: Sequence[str] = ("sample", "feature"),
    wanted: str = "expected finite numbers up to 3.4e38",
) -> NDArray[Any]:
    """Convert numbers to float32, or complex64.

    Raises UserError, see `refuse_wrong`, if one is not finite then, or is a whole number that loses
    digits.
    """
    dtype: Any = np.complex64 if numbers.dtype.kind == "c" else np.float32
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(numbers, dtype)
    refuse_wrong(~np.isfinite(single), numbers, label, noun, "not finite", wanted, axes)
    if numbers.dtype.kind in "iu":
        large = (numbers > _MAX_WHOLE) | (numbers < -_MAX_WHOLE)
        wanted = "expected at most 2**24, above which float32 rounds them; scale them"
        refuse_wrong(large, numbers, label, noun, "too large a whole number", wanted, axes)
    return single


def refuse_wrong(
    wrong: NDArray[np.bool_],
    values: NDArray[Any],
    label: str,
    noun: str,
    fault: str,
    wanted: str,
    axes: Sequence[str] = ("sample", "feature"),
) -> None:
    """Raise UserError if a value is wrong.

    Parameters
    ----------
    wrong : ndarray, bool [*shape]
        Whether each value is wrong.
    values : ndarray, [*shape]
        The values, of which the message shows the first wrong one.
    label, noun : str
        Name of the array, and of its values.
    fault : str
        Fault of the wrong values, such as "not finite".
    wanted : str
        Expected values and the remedy.
    axes : Sequence of str
        Names of the dimensions; the indices of further ones follow the last name.
    """
    count = int(wrong.sum())
    if not count:
        return
    place = np.unravel_index(int(wrong.argmax()), wrong.shape)
    names = [f"{name} " for name in axes] + [""] * len(place)
    where = ", ".join(f"{name}{index}" for name, index in zip(names, place, strict=False))
    raise UserError(
        f"{label}: {count} of {wrong.size} {noun} {'is' if count == 1 else 'are'} {fault}, first "
        f"at {where} (got {values[place]}); {wanted}"
    )
