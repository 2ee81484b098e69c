"""Accuracies no better than a guess: which points, and where the learning is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from contract.small import scenario

import otafl
from otafl import sweeping
from otafl.analysis import cautions

pytestmark = pytest.mark.exact

GUESS, SAMPLES = 0.1, 400


def result(trials: int = 1, own: bool = False, **accuracies: list[float]) -> xr.Dataset:
    """Accuracies of points at SNRs of 0, 10, .. dB, all trials alike."""
    points = len(next(iter(accuracies.values())))
    names = ("majority_share", "test_samples", "majority_accuracy", "own_test_samples")
    shares = dict(zip(names, (GUESS, SAMPLES, 0.5, SAMPLES), strict=True))
    shares = shares if own else {name: shares[name] for name in names[:2]}
    one = np.ones((points, trials))
    data: dict[str, Any] = {
        name: (("snr_db", "trial", "round"), (np.array(values)[:, None] * one)[..., None])
        for name, values in accuracies.items()
    }
    data |= {name: (("snr_db", "trial"), value * one) for name, value in shares.items()}
    ds = xr.Dataset(data, {"snr_db": 10.0 * np.arange(points), "round": [4]})
    return ds.assign_coords(final_round=("snr_db", np.full(points, 4.0)))


@pytest.mark.parametrize("trials", [1, 25])
def test_the_margin_is_three_standard_errors_of_a_guess(trials: int) -> None:
    limit = GUESS + 3 * (GUESS * (1 - GUESS) / (SAMPLES * trials)) ** 0.5
    assert cautions.describe_chance(result(trials, test_accuracy=[limit - 1e-9]))
    assert not cautions.describe_chance(result(trials, test_accuracy=[limit + 1e-9]))


def test_it_counts_the_points() -> None:
    assert cautions.describe_chance(result(test_accuracy=[0.1, 0.5, 0.12])) == (
        "at chance: test_accuracy 0.10 to 0.12 at 2 of 3 points (snr_db=0, snr_db=20); a guess "
        "gets 0.10"
    )
    assert cautions.describe_chance(result(test_accuracy=[0.1, 0.1])) == (
        "at chance: test_accuracy 0.10; a guess gets 0.10"
    )


def test_it_says_where_the_learning_is() -> None:
    local = cautions.describe_chance(result(test_accuracy=[0.1], local_test_accuracy=[0.7]))
    assert local == (
        "at chance: test_accuracy 0.10; a guess gets 0.10; the learning shows in "
        "local_test_accuracy (0.70)"
    )


def test_a_personal_model_is_held_to_its_devices_most_frequent_class() -> None:
    keys = {"test_accuracy": [0.4], "personal_own_test_accuracy": [0.52]}
    assert cautions.describe_chance(result(own=True, **keys)) == (
        "at chance: personal_own_test_accuracy 0.52; a guess gets 0.50"
    )
    assert not cautions.describe_chance(
        result(own=True, **keys | {"personal_own_test_accuracy": [0.7]})
    )


def test_missing_values_count_for_nothing() -> None:
    ds = result(2, test_accuracy=[0.1, 0.9])
    ds["test_accuracy"][0, 1] = np.nan
    assert "0.10 at 1 of 2 points" in cautions.describe_chance(ds)
    ds["test_accuracy"][0] = np.nan
    assert cautions.describe_chance(ds) == ""
    assert cautions.describe_chance(result(test_accuracy=[0.1]).drop_vars("majority_share")) == ""


def counted(**keys: Any) -> xr.Dataset:
    """A result of two rounds of five devices."""
    base = {"devices.count": 5, "training.rounds": 2, "trials": 2}
    return sweeping.run(scenario(base | keys))


def test_devices_that_stay_silent_are_counted_with_the_setting_that_silences_them() -> None:
    ds = counted(power={"name": "tci", "threshold": 0.7}, channel={"name": "rayleigh"})
    said = cautions.describe_arrivals(ds)
    used = float(ds["updates_used"].isel(round=-1).mean()) / 2
    shown = [f"{number:.1f}".removesuffix(".0") for number in (used, 5 - used)]
    assert said.startswith(
        f"{shown[0]} of 5 devices aggregated, {shown[1]} silent by power.threshold"
    )
    never = float((ds["tx_energy_j"].isel(round=-1) == 0).sum("device").mean())
    assert never > 0
    assert f"{never:.1f}".removesuffix(".0") + " of 5 never transmitted" in said
    assert cautions.describe_lost_runs(ds) == ""


def test_devices_that_never_transmit_are_of_those_of_their_points() -> None:
    sweep = {"sweep": {"devices.count": [2, 5]}}
    ds = counted(power={"name": "tci", "threshold": 1.5}, channel={"name": "rayleigh"}, **sweep)
    spent = ds["tx_energy_j"].isel(round=-1)
    never = (spent == 0).sum("device").mean("trial").values
    assert min(never) > 0
    shown = " to ".join(f"{number:.1f}".removesuffix(".0") for number in sorted(never))
    assert f"{shown} of 2 to 5 never transmitted" in cautions.describe_arrivals(ds)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"power": "gbma"}, ""),
        ({"transport": "ideal", "topology": "graph"}, ""),
        ({"power": "gbma", "devices.senders": 2}, ", 3 silent by devices.senders ("),
        (
            {"transport": "digital", "faults.crash_probability": 1.0},
            "0 of 5 devices aggregated, 5 ",
        ),
        (
            {
                "transport": {"name": "digital", "gain_threshold": 0.0},
                "channel": {"name": "awgn", "snr_db": -100},
            },
            ", 5 silent by a rate of zero (",
        ),
        (
            {"devices": {"count": 5, "deadline_s": 1e-9}},
            "0 of 5 devices aggregated, 5 without a slot (",
        ),
        ({"downlink": {"name": "digital", "loss": 0.9}}, " not reached by the downlink ("),
    ],
)
def test_causes_of_lost_updates(keys: dict[str, Any], said: str) -> None:
    found = cautions.describe_arrivals(counted(**keys))
    assert said in found if said else found == ""


def test_a_point_without_any_update_is_reported_in_python_too() -> None:
    silent = {"name": "tci", "threshold": 1e3}
    keys = {"trials": 2, "training.rounds": 2, "sweep": {"power": ["gbma", silent]}}
    with pytest.warns(UserWarning, match="no update arrived in 2 of 4 trials at 1 of 2 points"):
        ds = otafl.run(scenario(keys))
    assert "no update arrived in 2 of 2 trials:" in cautions.describe_lost_runs(ds.isel(power=[1]))
    assert cautions.describe_lost_runs(ds.isel(power=[0])) == ""
    assert cautions.describe_arrivals(ds.drop_vars("updates_used")) == ""


def test_fading_and_rounds_that_take_different_times() -> None:
    """Only for devices that move, and beyond a factor of three."""
    channel: dict[str, Any] = {"name": "rayleigh", "speed_kmh": 3.0}
    sweep = {"sweep": {"channel.round_interval_s": [1.0, 0.01]}}
    ds = counted(channel=channel, **sweep)
    took = float(ds["sim_time_s"].isel(round=-1).mean()) / 2
    said = cautions.describe_round_interval(ds)
    assert f"(1, 0.01 s) between rounds, which take {took:.2g} s of simulated time;" in said
    ds["sim_time_s"] *= 0.01 / took / 2.9
    said = cautions.describe_round_interval(ds)
    assert "at 1 of 2 points (round_interval_s=1);" in said
    ds["sim_time_s"] *= 2.9 / 3.1
    assert "(1, 0.01 s)" in cautions.describe_round_interval(ds)
    assert cautions.describe_round_interval(counted(channel="rayleigh")) == ""
    mixed = counted(sweep={"channel": ["rayleigh", channel]})
    assert "at 1 of 2 points (channel=rayleigh(speed_kmh=3.0))" in (
        cautions.describe_round_interval(mixed)
    )
