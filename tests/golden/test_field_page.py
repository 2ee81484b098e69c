"""What the script of the page about the whole field computes.

Its tables are compared by `tests/studies/test_write_tables.py`.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from studies.common.tables import interpolate_at_cost


def test_values_are_read_where_so_much_is_spent() -> None:
    """Half-way between records; at the end of a run that spends less; a guess if it diverged."""
    nan = np.nan
    rounds = {"round": [0, 2, 4], "final_round": 4}
    accuracy = [[0.1, 0.5, 0.9], [0.1, 0.4, 0.6], [0.07, 0.8, nan]]
    values = {"a": (("trial", "round"), np.array(accuracy)), "accuracy_guess": 0.1}
    ds = xr.Dataset(values, coords=rounds)
    spent = xr.DataArray(
        np.array([[0.0, 10.0, 20.0], [0.0, 5.0, 10.0], [0.0, 9.0, nan]]),
        dims=("trial", "round"),
        coords={"round": rounds["round"]},
    )
    got = interpolate_at_cost(ds, "a", spent, xr.DataArray(15.0)).values
    np.testing.assert_allclose(got, [0.7, 0.6, 0.1])
