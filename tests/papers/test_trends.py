"""Claims of the papers in small and fast: orderings and trends, on digits. The full experiments are
scenarios and scripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import otafl
from otafl.results.end_values import select_final

BASE: dict[str, Any] = {
    "name": "trend",
    "data": "digits",
    "model": {"name": "mlp", "hidden": [32]},
    "channel": {"name": "rayleigh", "snr_db": 25},
    "training": {"rounds": 60, "eval_every": 20, "batch_size": 6, "local_steps": 5},
    "trials": 4,
}


def run(**sections: Any) -> xr.Dataset:
    return otafl.run({**BASE, **sections})


@pytest.mark.slow
def test_more_local_steps_need_fewer_rounds() -> None:
    """McMahan et al. 2017, section 3: accuracy after equally many rounds grows with local work."""
    accuracy = [
        float(
            select_final(
                run(training={**BASE["training"], "local_steps": steps}), "test_accuracy"
            ).mean()
        )
        for steps in (1, 10)
    ]
    assert accuracy[1] > accuracy[0] + 0.05


@pytest.mark.slow
def test_label_skew_is_harder_than_iid() -> None:
    """McMahan et al. 2017, section 3: the pathological split learns more slowly."""
    result = run(
        algorithm={"name": "fedavg", "learning_rate": 0.1},
        sweep={
            "data.partition": ["iid", {"name": "label_skew", "classes_per_device": 1}],
        },
    )
    iid, skewed = select_final(result, "test_accuracy").mean("trial").values
    assert iid > skewed + 0.05


@pytest.mark.slow
def test_increments_in_the_tangent_space_need_no_signal_above_the_noise() -> None:
    """FedRLR+: at equal symbols its global model learns, at -10 dB as without errors."""
    algorithm = {"name": "fedrlr_plus", "rank": 4, "learning_rate": 0.2}
    over_the_air = run(algorithm=algorithm, sweep={"channel.snr_db": [-10, 25]})
    ideal = select_final(
        run(algorithm=algorithm, transport="ideal", power="genie"), "test_accuracy"
    )
    accuracy = select_final(over_the_air, "test_accuracy").mean("trial").values
    assert float(ideal.mean()) > 0.8
    assert np.all(accuracy > float(ideal.mean()) - 0.03)
    symbols = over_the_air.uplink_symbols.isel(round=-1).values
    assert np.all(symbols == 60 * 4 * (65 + 32 + 33 + 10))


def test_fedrlr_sends_its_factors_only() -> None:
    """R (M + N) reals a layer and round, whatever the number of devices (Table II)."""
    result = run(
        algorithm={"name": "fedrlr", "rank": 4},
        training={**BASE["training"], "rounds": 10, "eval_every": 10},
        sweep={"devices.count": [5, 10]},
    )
    symbols = result.uplink_symbols.isel(round=-1).values
    assert np.all(symbols == 10 * 4 * (64 + 32 + 32 + 10))


@pytest.mark.slow
def test_the_weakest_device_costs_inversion_dearly() -> None:
    """Plain inversion answers to the deepest fade; truncation and equal power do not."""
    result = run(
        algorithm={"name": "fedavg", "learning_rate": 0.1},
        channel={"name": "rayleigh", "snr_db": -20},
        sweep={"power": ["ci", "tci", "gbma"]},
    )
    nmse = result.aggregation_nmse.mean(("trial", "round"), skipna=True)
    assert float(nmse.sel(power="ci")) > 3 * float(nmse.sel(power="tci"))
    assert float(nmse.sel(power="ci")) > 3 * float(nmse.sel(power="gbma"))
    accuracy = select_final(result, "test_accuracy").mean("trial")
    assert float(accuracy.sel(power="ci")) < float(accuracy.sel(power="gbma"))
