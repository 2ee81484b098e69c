"""The engine's bookkeeping by hand: simulated time, joules, symbols and bits; who makes a slot;
what stops a trial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import engine, run, scenario
from support.rounding import SINGLE, assert_agree

import otafl
from otafl.core.contracts import Broadcast, Cohort, Group, Payload
from otafl.factorised.lowrank import project, retract, truncate
from otafl.results.dataset import Record
from otafl.running.stack_run import run_stack
from otafl.scenario import expand

pytestmark = pytest.mark.exact

REALS = 64 * 4 + 4 + 4 * 10 + 10
SAMPLE = 6 * (64 * 4 + 4 * 10) - 2 * 64 * 4 + 2 * (2 * 4 + 5 * 10)
FLOPS = 2 * (4 * SAMPLE + 2 * REALS) + REALS
"""Of a device's round: 6 operations a multiplication (forward and backward), 4 where no gradient is
handed on; biases, activations and the loss; 4 samples, 2 steps of SGD, and the increment."""
DOWN_S = 32 * REALS / 1e7
CYCLE = 4
"""Operations a cycle, the default."""


def ran(keys: dict[str, Any], trials: list[int] | None = None, point: int | None = None) -> Record:
    points = expand(scenario(keys))
    return run_stack(points if point is None else [points[point]], trials=trials)


def compute_j(flops_per_s: np.ndarray) -> np.ndarray:
    """kappa f^2 a cycle."""
    return 1e-28 * (flops_per_s / CYCLE) ** 2 * FLOPS / CYCLE


SPEEDS = np.array([1e6, 2e6, 4e6, 8e6])
CLASSES = {"name": "classes", "classes": SPEEDS.tolist()}


def test_two_rounds_over_the_air() -> None:
    """Awgn at full power and its budget: 0.1 W for the 310 symbols of a round at 1 MHz. A round
    waits for the slowest device."""
    record = ran(
        {
            "engine.dtype": "float64",
            "channel": {"name": "awgn", "snr_db": 20.0, "tx_power_dbm": 20.0},
            "power": "full",
            "transport": "over_the_air",
            "devices.compute": CLASSES,
            "training.rounds": 2,
        }
    )
    got = {name: values[0, 1] for name, values in record.variables.items()}
    air_s = REALS / 1e6
    rounds = np.array([0, 1, 2])
    assert record.rounds == [0, 1, 2]
    one_s = DOWN_S + FLOPS / 1e6 + air_s
    np.testing.assert_allclose(got["sim_time_s"], rounds * one_s, rtol=1e-12)
    np.testing.assert_allclose(got["airtime_s"], rounds * air_s, rtol=1e-12)
    np.testing.assert_array_equal(got["uplink_symbols"], rounds * REALS)
    np.testing.assert_array_equal(got["uplink_bits"], 0)
    np.testing.assert_array_equal(got["downlink_bits"], rounds * 32 * REALS)
    np.testing.assert_array_equal(got["side_symbols"], rounds * 4)
    np.testing.assert_array_equal(got["participants"][1:], 4)
    joules = rounds[:, None] * 0.1 * air_s * np.ones(4)
    np.testing.assert_allclose(got["tx_energy_j"], joules, rtol=1e-9)
    np.testing.assert_allclose(got["tx_power_w"][1:], 0.1, rtol=1e-9)
    np.testing.assert_allclose(
        got["compute_energy_j"], rounds[:, None] * compute_j(SPEEDS), rtol=1e-12
    )


def test_two_rounds_of_digital() -> None:
    """Four devices take turns with 32 bits a real, each at B log2(1 + 100)."""
    record = ran(
        {
            "engine.dtype": "float64",
            "channel": {"name": "awgn", "snr_db": 20.0},
            "transport": "digital",
            "devices.compute": CLASSES,
            "training.rounds": 2,
        }
    )
    bits = 32 * REALS
    turn_s = bits / (1e6 * np.log2(101))
    last = {name: v[0, 0, 2] for name, v in record.variables.items() if v.ndim > 2}
    assert last["uplink_bits"] == 2 * 4 * bits
    assert last["uplink_symbols"] == pytest.approx(2 * 4 * turn_s * 1e6, rel=1e-12)
    one_s = DOWN_S + FLOPS / 1e6 + 4 * turn_s
    assert last["sim_time_s"] == pytest.approx(2 * one_s, rel=1e-12)
    assert last["tx_energy_j"] == pytest.approx(2 * 0.1 * turn_s * np.ones(4), rel=1e-9)
    assert last["aggregation_nmse"] == 0.0


def test_deadline_and_the_cost_of_what_is_dropped() -> None:
    """A slot opens 5 ms after the broadcast begins; the two slow devices have done a part of their
    operations by then, and have spent as much."""
    keys = {"devices.compute": CLASSES, "transport": "ideal", "training.rounds": 2}
    deadline = 5e-3
    record = ran(keys | {"devices.deadline_s": deadline, "engine.dtype": "float64"})
    done = np.minimum(1.0, (deadline - DOWN_S) * SPEEDS / FLOPS)
    assert (done < 1).tolist() == [True, True, False, False]
    last = {name: v[0, 0, 2] for name, v in record.variables.items() if v.ndim > 2}
    np.testing.assert_allclose(last["compute_energy_j"], 2 * done * compute_j(SPEEDS), rtol=1e-12)
    assert last["participants"] == 2
    assert (last["tx_energy_j"] > 0).tolist() == [False, False, True, True]
    assert last["sim_time_s"] == pytest.approx(2 * (deadline + REALS / 1e6), rel=1e-12)


STOPPING = {
    "engine.dtype": "float64",
    "transport": "over_the_air",
    "algorithm.learning_rate": 0.5,
    "training.local_steps": 8,
    "training.rounds": 16,
    "training.eval_every": 2,
}


def test_stop_at() -> None:
    """A trial stops at the first record at or above its target, with what it had cost; the others
    go on as if alone."""
    free = ran(STOPPING).variables
    accuracy = free["test_accuracy"][0]
    rounds = np.arange(0, 17, 2)
    target = 0.35
    first = [int(np.argmax(row >= target)) if (row >= target).any() else None for row in accuracy]
    assert len(set(first)) > 1  # the trials differ, or nothing is tested
    record = ran(STOPPING | {"training.stop_at": {"test_accuracy": target}}).variables
    for trial, at in enumerate(first):
        last = len(rounds) if at is None else at + 1
        for name in ("test_accuracy", "train_loss", "sim_time_s", "tx_energy_j", "participants"):
            got, whole = record[name][0, trial], free[name][0, trial]
            np.testing.assert_allclose(got[:last], whole[:last], rtol=1e-9, err_msg=name)
            assert np.isnan(got[last:]).all()
        stop = record["stop_round"][0, trial]
        assert np.isnan(stop) if at is None else stop == rounds[at]
    assert np.isnan(record["diverged_round"]).all()


@pytest.mark.parametrize(
    ("algorithm", "field", "values", "transport"),
    [
        ("fedavg", "learning_rate", [0.1, 1e38, 0.2], "digital"),
        ("fedrlr", "q", [2.0, 1e38, 4.0], "over_the_air"),
    ],
)
def test_divergence_stays_with_its_point(
    algorithm: str, field: str, values: list[float], transport: str
) -> None:
    """A step that overflows in one point of a stack: its trials are marked and stop, the other
    points get the numbers that they get alone."""
    keys = {"algorithm": algorithm, "transport": transport, "training.rounds": 4}
    keys["sweep"] = {f"algorithm.{field}": values}
    record = ran(keys).variables
    diverged = record["diverged_round"]
    assert np.isfinite(diverged[1]).all()
    assert np.isnan(diverged[[0, 2]]).all()
    for trial in range(3):
        after = int(diverged[1, trial]) + 1
        assert np.isnan(record["test_accuracy"][1, trial, after:]).all()
        assert np.isnan(record["sim_time_s"][1, trial, after:]).all()
    for point in (0, 2):
        alone = ran(keys, point=point).variables
        for name in ("test_loss", "train_loss", "aggregation_nmse", "sim_time_s", "tx_energy_j"):
            assert_agree(record[name][point], alone[name][0], name, 4 * SINGLE)  # of four rounds


def test_retraction_of_a_diverged_row() -> None:
    """Overflow in one core gives NaN there, where it would be seen, and nothing elsewhere."""
    generator = torch.Generator().manual_seed(0)
    points = truncate(torch.randn(3, 6, 5, generator=generator), 2)
    gv, gtu = (torch.randn(3, n, 2, generator=generator) for n in (6, 5))
    (clean,) = retract([points], [project(points, gv, gtu)])
    step = project(points, gv, gtu)
    step.h[1] = torch.inf
    (moved,) = retract([points], [step])
    assert moved.s[1].isnan().all()
    for got, expected in ((moved.u, clean.u), (moved.s, clean.s), (moved.v, clean.v)):
        torch.testing.assert_close(got[[0, 2]], expected[[0, 2]])


def test_records_are_means_since_the_last_one() -> None:
    keys = {"training.rounds": 5, "engine.dtype": "float64", "power": "tci", "trials": 2}
    each, some = (ran(keys | {"training.eval_every": n}) for n in (1, 2))
    assert some.rounds == [0, 2, 4, 5]
    bounds = [(1, 3), (3, 5), (5, 6)]
    for name in ("train_loss", "aggregation_nmse", "participants", "tx_power_w"):
        a, b = each.variables[name], some.variables[name]
        means = np.stack([a[:, :, i:j].mean(2) for i, j in bounds], 2)
        np.testing.assert_allclose(b[:, :, 1:], means, rtol=1e-12, err_msg=name)
        assert np.isnan(b[:, :, 0]).all()
    for name in ("uplink_symbols", "tx_energy_j", "sim_time_s", "test_loss", "downlink_bits"):
        expected = each.variables[name][:, :, some.rounds]
        np.testing.assert_allclose(some.variables[name], expected, rtol=1e-12, err_msg=name)


def test_weighted_sums_of_those_in_time() -> None:
    """For a payload that applies the weights itself, the receiver says how much of the weight
    arrived: a device that misses the slot, or is silent, must not shrink the sum's scale."""

    class Factors(probes.Probe):
        def payload(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Payload:
            own = (probes.of_rows(cohort, round) * cohort.weight)[:, None].repeat(1, 2)
            return (Group({"x": own}, weighting="none"),)

    compute = {"name": "classes", "classes": [1.0, 1e3, 1e3, 1e3]}
    keys = {"engine.dtype": "float64", "devices.compute": compute, "devices.deadline_s": 0.5}
    channel = {"name": "awgn", "snr_db": 140.0}
    for link in ({"transport": "ideal"}, {"transport": "over_the_air", "power": "ci"}):
        one = run(engine(keys | link | {"channel": channel}, probe=Factors), 1)
        (heard,) = one.parts.algorithm.heard
        share = one.parts.samples.sample_share / one.parts.samples.sample_share.sum(1, keepdim=True)
        arrived = share[:, 1:].sum(1)
        torch.testing.assert_close(heard.received.group_weight[0], arrived, rtol=1e-12, atol=0)
        trial, device = torch.arange(3)[:, None], torch.arange(1, 4)
        hand = (share[:, 1:] * probes.value(trial, device, 0)).sum(1)
        torch.testing.assert_close(one.server["x"][:, 0], hand, rtol=1e-5, atol=0)


def test_saved_links_keep_their_rounds_when_nobody_transmits() -> None:
    """20 samples take 0.888 s and the slot opens every 0.5 s, so updates come in every other round;
    the rounds without are NaN in their places."""
    result = otafl.run(
        {
            "name": "silent",
            "devices": {
                "count": 2,
                "compute": {"name": "fixed", "flops_per_s": 1e6},
                "deadline_s": 0.5,
                "late": "next",
                "downlink_rate_bps": 1e12,
            },
            "training": {"rounds": 4, "eval_every": 1, "batch_size": 20},
            "output": {"save_link": True},
        }
    )
    assert result["participants"].values[0, 1:].tolist() == [0, 2, 0, 2]
    there = np.isfinite(result["link_c_0"].squeeze()).all("device").values
    assert there.tolist() == [False, True, False, True]
