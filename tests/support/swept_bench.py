"""Results over a sweep whose values are known from their place, for the tests of figures."""

from __future__ import annotations

import numpy as np
import xarray as xr

from otafl.results.variables import VARIABLES

AXES = {
    "snr_db": (np.array([0.0, 10.0, 20.0]), {"units": "dB", "long_name": "signal-to-noise ratio"}),
    "device_count": (np.array([10, 50]), {"units": "1", "long_name": "devices"}),
    "power": (np.array(["gbma", "ci"]), {"units": "1", "long_name": "power policy"}),
}


ROUNDS = [0, 10, 20]


def make_dataset(*names: str, trials: int = 3) -> xr.Dataset:
    """Variables over the named axes; each value is known from its place."""
    shape = [len(AXES[name][0]) for name in names]
    sizes = (*shape, trials, len(ROUNDS))
    accuracy = np.arange(np.prod(sizes), dtype=float).reshape(sizes) / 1000
    data = {
        "test_accuracy": accuracy,
        "aggregation_nmse": 10.0 ** -(1 + accuracy),
        "airtime_s": np.broadcast_to([0.0, 1.5, 3.0], sizes) + np.arange(trials)[:, None],
    }
    dims = (*names, "trial", "round")
    about = {n: {"units": VARIABLES[n].units, "long_name": VARIABLES[n].long_name} for n in data}
    ds = xr.Dataset({n: (dims, values, about[n]) for n, values in data.items()})
    ds["stop_round"] = (dims[:-1], np.full(sizes[:-1], np.nan))
    ds["diverged_round"] = (dims[:-1], np.full(sizes[:-1], np.nan))
    ds["device_local_test_accuracy"] = (("trial", "round", "device"), np.zeros((trials, 3, 4)))
    ds = ds.assign_coords({name: (name, *AXES[name]) for name in names})
    ends = np.full(shape, float(ROUNDS[-1]))
    return ds.assign_coords(
        trial=range(trials), round=ROUNDS, device=range(4), final_round=(names, ends)
    )
