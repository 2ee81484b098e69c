"""Who trains which model size, against hand-worked tables, and what the engine makes of it.

Mutations that make a test here fail: the smallest model for the first block, the slowest, the best
heard; shares not normalised, shares of the population for those of a round's participants; one draw
for all rounds, or for all devices; a level whose training does not fit in memory, momentum or the
minibatch forgotten, the largest memory looked at alone, shares of no classes; the gain without the
budget, thresholds in linear units; the whole band for each of those who share it, the upload or the
local work left out of the deadline, the first level in place of the last where none is in time; the
largest level's operations charged to all, on the clock or in joules; a participant of no level
counted, exchanged parameters of one direction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, scenario
from scipy import stats
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import ChannelState, Cohort, Level, LinkBudget
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.devices.activities import CAUSES
from otafl.devices.config_hardware import FixedComputeConfig
from otafl.devices.hardware import Hardware, devices_of
from otafl.levels.levels import LevelSetup
from otafl.scenario.errors import ScenarioError
from otafl.selection.choosing import SelectionSetup

DOUBLE = torch.float64
K = 8
SIZES = tuple(
    Level(ratio, size, size, flops=lambda n, size=size: float(n * size), kept_reals=10)
    for ratio, size in ((1.0, 400), (0.5, 200), (0.25, 100))
)


class Exact:
    """The true channel is known."""

    variance = None
    pilot_symbols = 0

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h


def levels(
    name: str,
    speeds: Any = None,
    budget: float = 1.0,
    trials: int = 1,
    memory: Any = np.inf,
    **settings: Any,
) -> Any:
    """Of `trials` trials of K devices with a band of 1,000 Hz; a round has 2 batches of 5."""
    own = torch.full((trials, K), budget, dtype=DOUBLE)
    one = torch.ones(trials, dtype=DOUBLE)
    link = LinkBudget(own, torch.ones_like(own), one, 1000.0 * one, one.bool())
    streams = Streams([5] * trials, list(range(trials)), dtype=DOUBLE)
    rates = np.ones((trials, K)) if speeds is None else np.asarray(speeds, float).reshape(-1, K)
    mains = devices_of(FixedComputeConfig(), K, np.random.default_rng(0))
    hardware = replace(
        Hardware.stack([mains] * trials),
        flops_per_s=rates,
        memory_mb=np.broadcast_to(memory, (trials, K)),
    )
    setup = LevelSetup(
        SIZES,
        hardware,
        samples=10,
        batch=5,
        link=SelectionSetup(Exact(), link, streams, {}),
    )
    config = registry.settings("levels", name)(**settings)
    return registry.component("levels", name)(config, setup)


def cohort(*devices: list[int]) -> Cohort:
    """Of the devices of each trial; all, if none are given."""
    rows = devices or (list(range(K)),)
    trial = torch.cat([torch.full((len(row),), s) for s, row in enumerate(rows)])
    device = torch.tensor([k for row in rows for k in row])
    weight = torch.ones(len(device), dtype=DOUBLE)
    return Cohort.fresh(trial, device, weight, tuple(map(len, rows)), K)


def state(power: Any = 1.0, trials: int = 1) -> ChannelState:
    power = torch.as_tensor(power, dtype=DOUBLE).expand(trials, K)
    h = power.sqrt().to(torch.complex128)[:, :, None, None, None]
    return ChannelState(h, torch.ones_like(power))


def of(assigned: Any, who: Cohort, power: Any = 1.0, round: int = 0) -> list[int]:
    got: Tensor = assigned.of(who, round, state(power, who.trials))
    assert got.dtype == torch.int64
    return got.tolist()


def test_fixed_blocks_go_by_shares() -> None:
    assert of(levels("fixed"), cohort()) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert of(levels("fixed", shares=(1, 0, 3)), cohort()) == [0, 0, 2, 2, 2, 2, 2, 2]
    assert of(levels("fixed", shares=(1, 1, 2)), cohort([6, 1])) == [2, 0]


def test_random_assignment_keeps_its_counts_and_differs_between_trials() -> None:
    drawn = levels("fixed", trials=2, assignment="random")
    every = list(range(K))
    got = np.reshape(of(drawn, cohort(every, every)), (2, K))
    assert sorted(got[0]) == sorted(got[1]) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert (got[0] != got[1]).any()


def test_dynamic_levels_are_drawn_by_device_and_round() -> None:
    drawn = levels("dynamic", shares=(2, 1, 1))
    table = np.array([of(drawn, cohort(), round=t) for t in range(400)])
    counts = np.bincount(table.ravel(), minlength=3)
    assert stats.chisquare(counts, table.size * np.array([0.5, 0.25, 0.25])).pvalue > 1e-3
    assert (table.std(0) > 0).all()
    assert (table.std(1) > 0).any()
    assert of(drawn, cohort([6, 2]), round=3) == table[3, [6, 2]].tolist()


def test_the_fastest_have_the_largest_models() -> None:
    speeds = [5, 1, 8, 2, 7, 3, 6, 4]
    assert of(levels("compute", speeds), cohort()) == [1, 2, 0, 2, 0, 2, 0, 1]


def test_memory_holds_parameters_gradients_momentum_and_a_minibatch() -> None:
    need = [(3 * size + 5 * 10) * 8 / 2**20 for size in (400, 200, 100)]
    fits = levels("memory", memory_mb=(need[1], need[0], need[0] * 0.999, need[2]))
    assert of(fits, cohort()) == [1, 1, 0, 0, 1, 1, 2, 2]
    with pytest.raises(UserError, match=r"devices.levels.memory_mb: got .* smallest model takes"):
        levels("memory", memory_mb=(need[2] * 0.999,))


def test_without_classes_the_memory_is_the_hardwares() -> None:
    need = np.array([(3 * size + 5 * 10) * 8 / 2**20 for size in (400, 200, 100)])
    own = [[np.inf, need[0], need[0] * 0.999, need[1], need[1] * 0.999, need[2], 1, 1], [1.0] * K]
    held = levels("memory", trials=2, memory=own)
    assert of(held, cohort(list(range(K)), [0])) == [0, 0, 1, 1, 2, 2, 0, 0, 0]
    with pytest.raises(UserError, match=r"devices.compute.memory_mb: a device has .* smallest"):
        levels("memory", memory=[*own[0][:7], need[2] * 0.999])


def test_the_best_heard_of_a_round_have_the_largest_models() -> None:
    power = [1, 8, 3, 5, 2, 7, 6, 4]
    assert of(levels("channel"), cohort(), power) == [2, 0, 2, 1, 2, 0, 0, 1]
    assert of(levels("channel"), cohort([0, 4, 7]), power) == [2, 1, 0]
    assert of(levels("channel", trials=2), cohort([0, 4, 7], [1]), power) == [2, 1, 0, 1]


def test_thresholds_are_of_the_signal_to_noise_ratio() -> None:
    heard = levels("channel", budget=10.0, min_snr_db=(20, 10))
    assert of(heard, cohort([0, 1, 2, 3]), [9.9, 10.0, 0.99, 1.0, 1, 1, 1, 1]) == [1, 0, 2, 1]


def test_the_largest_model_in_time_is_trained() -> None:
    # 10 samples of so many operations each; 32 bits a parameter at 1000/n log2(1 + snr) a second
    alone = 400 * 10 / 100 + 32 * 400 / (1000 * 2)
    shared = 200 * 10 / 100 + 32 * 200 / (500 * 2)
    speeds = [100.0] * K
    assert of(levels("deadline", speeds, seconds=alone), cohort([0]), 3.0) == [0]
    assert of(levels("deadline", speeds, seconds=alone * 0.999), cohort([0]), 3.0) == [1]
    two = cohort([0, 5])
    assert of(levels("deadline", speeds, seconds=shared), two, 3.0) == [1, 1]
    assert of(levels("deadline", speeds, seconds=shared * 0.999), two, 3.0) == [2, 2]
    assert of(levels("deadline", speeds, seconds=1e-3), two, 3.0) == [2, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shares": [1, 1]}, "devices.levels.shares: got 2 values, and there are 4 to give"),
        ({"shares": [0, 0, 0, 0]}, "devices.levels.shares: all are 0"),
        (
            {"name": "memory", "shares": [1, 1]},
            "devices.levels: shares: are those of the classes of memory_mb, which is not given",
        ),
        (
            {"name": "channel", "min_snr_db": [1]},
            "devices.levels.min_snr_db: got 1 values, and there are 3 to give",
        ),
    ],
)
def test_shares_must_fit_the_method(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        scenario({"algorithm": "heterofl", "devices.levels": settings})


def test_methods_of_one_size_have_no_levels() -> None:
    with pytest.raises(ScenarioError, match=r"'fedavg' has models of one size.*heterofl"):
        scenario({"devices.levels": "dynamic"})


def test_time_joules_and_parameters_go_by_level() -> None:
    settings = {"levels": [1.0, 0.5], "momentum": 0.0}
    one = engine(
        {
            "algorithm": {"name": "heterofl", **settings},
            "devices.levels.shares": [1, 3],
            "devices.compute": {"name": "fixed", "flops_per_s": 1e3},
            "trials": 1,
        }
    )
    sizes = one.parts.algorithm.levels()
    one.round(0)
    samples = 4 * 2
    flops = np.array([sizes[0].flops(samples)] + [sizes[1].flops(samples)] * 3)
    assert flops[0] > flops[1]
    joules = one.parts.clock.spent_j()[0, :, CAUSES.index("compute")]
    np.testing.assert_allclose(joules / flops, joules[0] / flops[0])
    taken = one.sizes.take()
    np.testing.assert_array_equal(taken["level_participants"], [[1, 3]])
    parameters = sizes[0].parameters + 3 * sizes[1].parameters
    np.testing.assert_array_equal(taken["exchanged_parameters"], [2 * parameters])
    macs = sizes[0].macs + 3 * sizes[1].macs
    np.testing.assert_array_equal(taken["training_macs"], [macs * samples])
    sent = 32.0 * parameters
    assert one.downlink_bits[0] == sent
    received_s = 32.0 * sizes[0].parameters / 1e7
    slot = one.means.take()["airtime_s"].item()
    assert one.parts.clock.now()[0] == pytest.approx(received_s + flops[0] / 1e3 + slot)


def test_a_digital_uplink_carries_what_a_device_has() -> None:
    """Of a masked group its slice alone, 32 bits a number, and airtime by that."""
    keys = {
        "algorithm": {"name": "heterofl", "levels": [1.0, 0.5], "masked_loss": False},
        "devices.levels.shares": [1, 3],
        "transport": "digital",
        "channel": {"name": "awgn", "snr_db": 0.0},
        "trials": 1,
    }
    one = engine(keys)
    one.round(0)
    sizes = [level.parameters for level in one.parts.algorithm.levels()]
    taken = one.means.take()
    bits = 32.0 * (sizes[0] + 3 * sizes[1])
    assert taken["uplink_bits"].item() == bits
    assert taken["uplink_symbols"].item() == pytest.approx(bits)  # one bit a use at 0 dB
    codec = engine(keys | {"codec": {"name": "uniform", "bits": 8}})
    codec.round(0)
    whole = 8 * sizes[0] + 64
    share = 1 + 3 * sizes[1] / sizes[0]
    assert codec.means.take()["uplink_bits"].item() == pytest.approx(whole * share)


def test_late_updates_keep_what_they_pay_for() -> None:
    """A masked update that waits for the next slot costs no more there."""
    one = engine(
        {
            "algorithm": {"name": "heterofl", "levels": [1.0, 0.5], "masked_loss": False},
            "devices.levels.shares": [1, 3],
            "transport": "digital",
            "devices.compute": {
                "name": "classes",
                "classes": [30.0, 1e9],
                "assignment": "in_order",
            },
            "devices.deadline_s": 100.0,
            "devices.late": "next",
            "trials": 1,
        }
    )
    sizes = np.array([level.parameters for level in one.parts.algorithm.levels()])
    slow = one.parts.hardware.flops_per_s[0] == 30.0
    level = np.array([0, 1, 1, 1])
    sent, waited = [], False
    for t in range(60):
        one.round(t)
        waited |= one.pending is not None
        sent.append(one.means.take()["uplink_bits"].item())
    each = np.diff([0.0, *sent]) / 32.0
    fast = sizes[level[~slow]].sum()
    assert waited
    assert each[0] == pytest.approx(fast)
    assert {round(value) for value in each} <= {
        fast + own for own in (0, *np.unique(sizes[level[slow]]), sizes[level[slow]].sum())
    }
    assert max(each) > fast + 1
