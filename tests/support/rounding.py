"""Agreement of two ways of computing the same numbers, which may round differently.

Draws, counts and copies are compared exactly, with `numpy.testing.assert_array_equal`. Two ways of
computing are a stack and a single trial, chunks and a whole, a compiled loop and tensor operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

SINGLE = 1e-5
"""Largest difference in single precision, over the largest value."""
DOUBLE = 1e-9
"""Largest difference in double precision, over the largest value."""


def assert_agree(found: Any, expected: Any, name: str = "", tolerance: float | None = None) -> None:
    """Compare tensors, arrays, numbers, or mappings and sequences of them, up to rounding.

    Values that are not finite must stand at the same places, and integers must be equal.

    tolerance: over the largest value, for numbers in a wider type than they were computed in.
    """
    if isinstance(expected, Mapping):
        assert list(found) == list(expected), name
        for key in expected:
            assert_agree(found[key], expected[key], f"{name} {key}", tolerance)
        return
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), name
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_agree(one, other, f"{name} {i}", tolerance)
        return
    ours, theirs = _to_array(found), _to_array(expected)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
    if theirs.dtype.kind not in "fc":
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        return
    there = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[~there], theirs[~there], err_msg=name)
    largest = np.abs(theirs[there]).max(initial=0.0)
    if tolerance is None:
        tolerance = SINGLE if np.finfo(theirs.dtype).bits <= 32 else DOUBLE
    np.testing.assert_allclose(
        ours[there], theirs[there], rtol=0, atol=tolerance * largest, err_msg=name
    )


def _to_array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
