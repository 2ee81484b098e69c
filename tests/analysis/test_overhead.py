"""What it cost to reach a target, and whose symbols are counted."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from twins.setting import mlp

import otafl
from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.analysis import overhead

ROUNDS = [0, 5, 10, 20]
ACCURACY = [
    [[0.1, 0.7, 0.6, 0.8], [0.1, 0.2, 0.3, 0.4]],
    [[0.1, 0.69, 0.7, 0.7], [0.9, 0.1, np.nan, np.nan]],
]
"""Of two points and two trials: reached at 5 (and lost again), never, at 10, before round 1."""


def result() -> xr.Dataset:
    rounds = np.array(ROUNDS, dtype=float)
    each = np.broadcast_to(rounds, (2, 2, 4))
    joules = np.stack([each * 2.0, each * 3.0, np.full_like(each, np.nan)], -1)
    dims = ("snr_db", "trial", "round")
    return xr.Dataset(
        {
            "test_accuracy": (dims, np.array(ACCURACY)),
            "uplink_symbols": (dims, each * 100.0, {"units": "symbol"}),
            "side_symbols": (dims, each * 10.0),
            "airtime_s": (dims, each * 1e-3),
            "sim_time_s": (dims, each * 1.5),
            "tx_energy_j": ((*dims, "device"), joules),
            "compute_energy_j": ((*dims, "device"), joules * 10.0),
            "device_energy_j": (
                (*dims, "device", "cause"),
                joules[..., None] * np.array([10.0, 1.0]),
                {"units": "J"},
            ),
            "participants": (dims, np.where(each > 10, 5.0, np.where(each > 0, 8.0, np.nan))),
            "stop_round": (dims[:2], np.full((2, 2), np.nan)),
        },
        {
            "snr_db": [0, 10],
            "round": ROUNDS,
            "cause": ["compute", "idle"],
            "final_round": ("snr_db", [20.0, 20.0]),
        },
        {"scenario": "transport: digital\n"},
    )


def test_the_first_record_at_the_target_and_what_it_had_cost() -> None:
    got = otafl.compute_cost_to_reach(result(), "test_accuracy", 0.7)
    expected = [[5.0, np.nan], [10.0, 0.0]]
    np.testing.assert_array_equal(got["round"], expected)
    factors = {"uplink_symbols": 100.0, "side_symbols": 10.0, "airtime_s": 1e-3, "sim_time_s": 1.5}
    factors |= {"tx_energy_j": 5.0, "compute_energy_j": 50.0, "energy_j": 55.0}
    for name, factor in factors.items():
        assert got[name].dims == ("snr_db", "trial")
        np.testing.assert_allclose(got[name], np.array(expected) * factor)
    of_causes = np.array(expected)[..., None] * [50.0, 5.0]
    np.testing.assert_allclose(got["device_energy_j"].transpose(..., "cause"), of_causes)
    assert got["uplink_symbols"].attrs["units"] == "symbol"
    assert got["energy_j"].attrs["units"] == "J"
    assert "final_round" not in got.coords


def test_what_cannot_be_asked_is_named() -> None:
    variable = "tx_energy_j"
    with pytest.raises(otafl.UserError, match=rf"to_reach: '{variable}' is not .* test_accuracy"):
        otafl.compute_cost_to_reach(result(), variable, 0.5)


def test_symbols_of_one_device() -> None:
    """A hundred symbols a round: 8 participants in the first ten rounds and 5 in ten more, 6.5 on
    average; one trial ended at round 5, with 8."""
    data = result()
    ended = (data["snr_db"] == 10) & (data["trial"] == 1) & (data["round"] > 5)
    for name in ("uplink_symbols", "participants"):
        data[name] = data[name].where(~ended)
    participants = np.array([[6.5, 6.5], [6.5, 8.0]])
    cases = {"digital": 100.0 / participants, "over_the_air": 100.0, "ideal": 100.0}
    for transport, one in cases.items():
        got = otafl.compute_symbols_per_round(
            data.assign_attrs(scenario=f"transport: {transport}\n")
        )
        assert got.dims == ("snr_db", "trial")
        np.testing.assert_allclose(got, np.broadcast_to(one, (2, 2)))


def test_an_unknown_transport_is_named() -> None:
    data = result().assign_attrs(scenario="transport: pigeon\n")
    with pytest.raises(otafl.UserError, match="transport 'pigeon' counts is not known"):
        otafl.compute_symbols_per_round(data)


def test_the_counts_of_table_2() -> None:
    """Fact 18: overhead is rounds times one device's symbols, 75 x 268,800 = 2.02e7 for the
    benchmark; 1.42 % of it are 39.4 rounds of FedRLR's 7,272. Ten devices' orthogonal uploads in
    7.5 rounds would be the same number."""
    model = mlp((784, 256, 256, 10))
    assert (model.macs, model.num_params - model.macs) == (268_800, 522)
    benchmark = 75 * model.macs
    assert benchmark == 20_160_000 == 7.5 * 10 * model.macs
    ratio = FedRLR(FedRLR.Settings(rank=4), model, 10).constants["compression_actual"]
    assert ratio * model.macs == pytest.approx(7272)
    for percent, rounds in ((1.42, 39.4), (1.44, 39.9)):
        assert percent / 100 * 2.02e7 / (ratio * model.macs) == pytest.approx(rounds, abs=0.11)


def test_the_soonest_on_validation_data_is_kept() -> None:
    """Targets less a hundredth: the second value is there first, though a trial of the first has
    the higher end; of two that never get there, the first."""
    ds = result()
    slow, fast = np.full((2, 2, 4), 0.3), np.full((2, 2, 4), 0.795)
    slow[0, :, 3] = 0.9
    fast[0, :, 0] = fast[1] = 0.1
    values = np.stack([slow, fast], 1)
    dims = ("snr_db", "learning_rate", "trial", "round")
    grown = ds.expand_dims(learning_rate=[0.1, 0.3]).assign(validation_accuracy=(dims, values))
    best = overhead.select_soonest(
        grown.assign_coords(final_round=ds["final_round"]), "learning_rate", 0.8
    )
    assert best["learning_rate"].values.tolist() == [0.3, 0.1]
    assert "learning_rate" not in best.dims
    with pytest.raises(otafl.UserError, match=r"soonest: 'lr' is no axis of this result"):
        overhead.select_soonest(grown, "lr", 0.8)
