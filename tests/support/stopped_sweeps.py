"""Sweeps that are stopped, and what must be the same afterwards."""

from __future__ import annotations

import numpy as np
import xarray as xr


class Kill:
    """Presses Ctrl-C once, after so many rounds in all."""

    def __init__(self, after: int) -> None:
        self.after, self.calls = after, 0

    def __call__(self, done: int, total: int, note: str) -> None:
        self.calls += 1
        assert 0 < done <= total
        if done == self.after:
            raise KeyboardInterrupt


def same(one: xr.Dataset, other: xr.Dataset, tolerance: float = 0.0) -> None:
    """All but the computing time; some trial ends with a finite loss, lest all be the same NaN."""
    assert set(one.variables) == set(other.variables)
    if "train_loss" in one:
        assert np.isfinite(one["train_loss"].isel(round=-1)).any()
    for name in set(one.variables) - {"wall_time_s"}:
        if tolerance and one[name].dtype.kind == "f":
            np.testing.assert_allclose(one[name], other[name], rtol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
