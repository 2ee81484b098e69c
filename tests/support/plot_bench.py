"""Results whose numbers are known by their place, for the tests of figures and reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from otafl.plots import write_csv
from otafl.results.variables import VARIABLES

AXES: dict[str, tuple[list[Any], str, str]] = {
    "snr_db": ([0, 10, 20], "dB", "normalised SNR"),
    "device_count": ([2, 4], "1", "devices in the population"),
    "power": (["gbma", "tci(threshold=0.3)"], "", "power policy"),
}
KEYS = ("values", "units", "long_name")
ROUNDS = [0, 5, 10]
TRIALS, DEVICES = 2, 4


def make_result(
    values: dict[str, np.ndarray],
    axes: Sequence[str] = (),
    trials: int = TRIALS,
    title: str = "bench",
) -> xr.Dataset:
    """A combined result over these axes. values: of variables, with the axes in front of the dims
    that `VARIABLES` says."""
    shape = [len(AXES[name][0]) for name in axes]
    data = {}
    for name, array in values.items():
        known = VARIABLES[name]
        about = {"units": known.units, "long_name": known.long_name}
        data[name] = ((*axes, *known.dims), np.asarray(array, dtype=float), about)
    for name in ("end_round", "stop_round", "diverged_round"):
        data.setdefault(name, ((*axes, "trial"), np.full((*shape, trials), np.nan), {}))
    ds = xr.Dataset(data)
    coords = {
        name: (name, np.array(AXES[name][0]), {"units": AXES[name][1], "long_name": AXES[name][2]})
        for name in axes
    }
    sizes = {str(dim): n for dim, n in ds.sizes.items() if dim not in (*axes, "round")}
    ds = ds.assign_coords({dim: np.arange(n) for dim, n in sizes.items()} | coords)
    ends = np.full(shape, float(ROUNDS[-1]))
    ds = ds.assign_coords(round=ROUNDS, final_round=(tuple(axes), ends))
    ds["round"].attrs["long_name"] = "round"
    swept = {f"section.{name}": AXES[name][0] for name in axes}
    ds.attrs = {
        "title": title,
        "scenario": json.dumps({"name": title, "sweep": swept}),
        "sweep": json.dumps(
            [
                {
                    "dim": name,
                    "size": len(AXES[name][0]),
                    "coords": {name: dict(zip(KEYS, AXES[name], strict=True))},
                }
                for name in axes
            ]
        ),
        "scenario_hash": "0123abcd",
        "seed": 7,
        "device_name": "a processor",
        "otafl_version": "0.1.0",
        "complete": 1,
    }
    return ds


def make_ramp(
    *axes: str, scale: float = 0.001, tail: tuple[int, ...] = (TRIALS, len(ROUNDS))
) -> Any:
    """scale times 0, 1, 2, ... over the axes, trials and rounds."""
    shape = (*(len(AXES[name][0]) for name in axes), *tail)
    return scale * np.arange(np.prod(shape), dtype=float).reshape(shape)


def make_dataset(*axes: str, trials: int = 3) -> xr.Dataset:
    """A result over these axes whose accuracies are 0, 1, 2, ... thousandths."""
    accuracy = make_ramp(*axes, tail=(trials, len(ROUNDS)))
    seconds = np.broadcast_to([0.0, 1.5, 3.0], accuracy.shape) + np.arange(trials)[:, None]
    values = {"test_accuracy": accuracy, "airtime_s": seconds}
    values["aggregation_nmse"] = 10.0 ** -(1 + accuracy)
    return make_result(values, axes, trials)


def make_small_result() -> xr.Dataset:
    """A result over three SNRs with a variable of each kind, for what cannot be drawn of it."""
    values = {
        "test_accuracy": make_ramp("snr_db"),
        "tx_energy_j": make_ramp("snr_db", tail=(2, 3, 4)),
        "participants": make_ramp("snr_db"),
        "device_own_test_accuracy": make_ramp("snr_db", tail=(2, 3, 4)),
    }
    return make_result(values, ["snr_db"])


def read_csv(data: xr.Dataset, tmp_path: Path) -> pd.DataFrame:
    """What is drawn, written as a CSV and read again."""
    write_csv(data, tmp_path / "drawn.csv")
    return pd.read_csv(tmp_path / "drawn.csv")
