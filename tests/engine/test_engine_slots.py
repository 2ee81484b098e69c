"""The engine under every protocol and with devices that come, go and run empty: each update is used
once or lost, stacked is alone, replays are equal, budgets hold.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import engine, run, scenario, tree

import otafl
from otafl.core.contracts import Cohort, Group, Payload, Workload
from otafl.engine.engine import Engine
from otafl.results.end_values import select_final
from otafl.running.stack_run import run_stack
from otafl.scenario import expand

pytestmark = pytest.mark.exact

SLOW = {"name": "lognormal", "median_flops_per_s": 1e6, "sigma": 1.0}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "deadline": {"devices.deadline_s": 0.015},
    "late": {"devices.deadline_s": 0.015, "devices.late": "next"},
    "periodic": {"devices.protocol": {"name": "periodic", "period_s": 0.01}},
    "quorum": {"devices.protocol": {"name": "quorum", "ready": 2}},
    "asynchronous": {"devices.protocol": "asynchronous"},
}
LEAVING = {"devices.availability": {"name": "markov", "mean_on_s": 0.08, "mean_off_s": 0.03}}
BATTERIES = {
    "devices.compute": SLOW
    | {
        "battery_j": 2e-4,
        "restart": 0.3,
        "harvest_w": 2e-4,
        "kappa": 1.3e-19,  # 2 mW at the median speed
        "circuit_w": 1e-3,
        "receive_w": 1e-3,
        "idle_w": 1e-3,
    },
    "channel": {"name": "awgn", "snr_db": 20.0, "tx_power_dbm": -10.0},
    "power": "full",
}


class Sent(probes.Probe):
    """Sends who and when: what reaches the server is one update for each (device, round), of odd
    devices with a group of their own."""

    def widths(self) -> dict[str, int]:
        return {"x": 2, "odd": 1}

    def payload(self, broadcast: Any, cohort: Cohort, round: int) -> Payload:
        self.began = getattr(self, "began", []) + [
            (int(s), int(k), round) for s, k in zip(cohort.trial, cohort.device, strict=True)
        ]
        rows = (cohort.device % 2).nonzero().squeeze(1)
        odd = Group({"odd": probes.of_rows(cohort, round)[rows, None]}, row_index=rows)
        return *super().payload(broadcast, cohort, round), odd

    def count_flops(self, workload: Workload) -> np.ndarray:
        return np.full_like(workload.num_samples, 1.4e4)  # 14 ms for the median device


def delivered(one: Engine) -> list[tuple[int, int, int]]:
    """(trial, device, round in which it was started) of all that was aggregated, by what was
    heard: the staleness says the round."""
    out = []
    for heard in one.parts.algorithm.heard:
        rows = zip(heard.cohort.trial, heard.cohort.device, heard.cohort.staleness, strict=True)
        out += [(int(s), int(k), heard.round - int(stale)) for s, k, stale in rows]
    return out


@pytest.mark.parametrize(
    ("protocol", "life"),
    list(zip(PROTOCOLS, ("always", "leaving", "batteries", "always", "batteries"), strict=True)),
)
def test_every_update_is_used_once_or_lost(protocol: str, life: str) -> None:
    # slots of 20 ms, in which a device may lose its update, come back, and begin another
    slow_air = {"channel": {"name": "awgn", "bandwidth_hz": 100.0}}
    more = {"always": {}, "leaving": LEAVING | slow_air, "batteries": BATTERIES}[life]
    keys = {
        "engine.dtype": "float64",
        "transport": "ideal",
        "devices.count": 5,
        "devices.compute": SLOW,
        "output.save_timeline": True,
    }
    one = run(engine(keys | PROTOCOLS[protocol] | more, probe=Sent), 40)
    began, used = Counter(one.parts.algorithm.began), Counter(delivered(one))
    assert max(used.values()) == 1
    assert not used - began
    started, lost = one.parts.clock.count_updates()
    at_work = one.parts.clock.get_busy().sum(1)
    for trial in range(3):
        mine = [cell for cell in used if cell[0] == trial]
        assert started[trial] == sum(cell[0] == trial for cell in began)
        assert started[trial] == len(mine) + lost[trial] + at_work[trial]
        assert one.counts["updates_used"][trial] == len(mine)
    # what was aggregated is what those devices sent then: the sum of the means of each slot
    hand, of_odd = torch.zeros(2, 3, dtype=torch.float64)
    for heard in one.parts.algorithm.heard:
        numbers = probes.value(
            heard.cohort.trial.double(),
            heard.cohort.device.double(),
            heard.round - heard.cohort.staleness.double(),
        )
        trial, weight = heard.cohort.trial, heard.cohort.normalised_weight
        hand.index_add_(0, trial, numbers * weight)
        weight = weight * (heard.cohort.device % 2)
        total = torch.zeros_like(hand).index_add_(0, trial, weight)[trial]
        of_odd.index_add_(0, trial, numbers * weight / total.clamp_min(1e-300))
    torch.testing.assert_close(one.server["x"][:, 0], hand, rtol=1e-12, atol=0)
    torch.testing.assert_close(one.server["odd"][:, 0], of_odd, rtol=1e-12, atol=0)
    if life != "always" or protocol == "deadline":
        assert lost.sum() > 0
    stale = any((heard.cohort.staleness > 0).any() for heard in one.parts.algorithm.heard)
    assert stale == (protocol != "deadline")


@pytest.mark.parametrize(
    ("protocol", "life"), [("quorum", "batteries"), ("asynchronous", "leaving")]
)
def test_stacked_is_alone_though_participants_differ(protocol: str, life: str) -> None:
    """Trials and points of a stack, each with its own devices in each slot, are what they are
    alone; and once more is the same."""
    low = {"devices.compute": BATTERIES["devices.compute"] | {"charge": 0.2}}
    more = LEAVING if life == "leaving" else BATTERIES | low
    keys = {
        "devices.compute": SLOW,
        "training.rounds": 12,
        "training.eval_every": 12,
        "transport": "over_the_air",
        "engine.dtype": "float64",
        "sweep": {"algorithm.learning_rate": [0.1, 0.2]},
    }
    points = expand(scenario(keys | PROTOCOLS[protocol] | more))
    together = run_stack(points).variables
    again = run_stack(points).variables
    for name, values in together.items():
        if name != "wall_time_s":
            np.testing.assert_array_equal(values, again[name], err_msg=name)
    for point, trial in ((0, 0), (1, 2)):
        alone = run_stack([points[point]], trials=[trial]).variables
        for name, values in alone.items():
            if name != "wall_time_s":
                np.testing.assert_allclose(
                    values[0, 0], together[name][point, trial], rtol=1e-9, err_msg=name
                )
    assert len(np.unique(together["updates_lost"][..., -1])) > 1


def test_nobody_radiates_more_than_its_battery_has() -> None:
    """Mains-sized power on a battery of a tenth of a slot: the slot takes what there is, circuits
    first, and no more."""
    reals, bandwidth = 310, 1e6
    slot_j = 0.1 * reals / bandwidth  # 20 dBm
    compute = {"name": "fixed", "flops_per_s": 1e9, "kappa": 0.0, "circuit_w": 0.02}
    keys = {
        "engine.dtype": "float64",
        "channel": {"name": "awgn", "snr_db": 20.0, "tx_power_dbm": 20.0},
        "power": "full",
        "devices.compute": compute | {"battery_j": 0.5 * slot_j, "efficiency": 0.5},
    }
    one = run(engine(keys), 1)
    spent = one.parts.clock.compute_spent_j()
    np.testing.assert_allclose(spent.sum(2), 0.5 * slot_j, rtol=1e-6)
    np.testing.assert_allclose(spent[..., 2], 0.02 * reals / bandwidth, rtol=1e-6)
    radiated = one.means.take()["radio_j"].numpy()
    np.testing.assert_allclose(radiated, 0.5 * (0.5 * slot_j - 0.02 * reals / bandwidth), rtol=1e-6)


def test_round_budget() -> None:
    """Whose work costs more than the budget stays away; the others radiate what is left of it."""
    products = 6 * (64 * 4 + 4 * 10) - 2 * 64 * 4
    gradients = (products + 2 * (2 * 14 + 3 * 10)) * 4 * 2
    flops = gradients + (2 * 2 + 1) * (64 * 4 + 4 + 4 * 10 + 10)
    speeds = np.array([1e8, 2e8, 4e8, 8e8])
    work_j = 1e-22 * (speeds / 4) ** 2 * flops / 4
    budget = 1.5 * work_j[1]
    keys = {
        "engine.dtype": "float64",
        "channel": {"name": "awgn", "snr_db": 20.0, "tx_power_dbm": 40.0},
        "power": "full",
        "devices.compute": {
            "name": "classes",
            "classes": [{"flops_per_s": speed, "kappa": 1e-22} for speed in speeds.tolist()],
        },
        "devices.round_budget_j": budget,
    }
    record = run_stack(expand(scenario(keys | {"training.rounds": 2}))).variables
    assert (record["participants"][..., 1:] == 2).all()
    spent = record["device_energy_j"][0, :, -1].sum(-1)
    full_j = 10.0 * 310 / 1e6
    hand = [work_j[0] + min(full_j, budget - work_j[0]), budget, 0.0, 0.0]
    np.testing.assert_allclose(spent, [np.array(hand) * 2] * 3, rtol=1e-6)


def test_trials_end_at_their_time_or_when_nobody_will_come() -> None:
    """Each trial is recorded at its own last slot, and `select_final` finds it there."""
    keys = PROTOCOLS["asynchronous"] | {
        "name": "ends",
        "devices.compute": SLOW,
        "training.rounds": 60,
        "training.eval_every": 50,
        "training.duration_s": 0.05,
    }
    result = otafl.run(tree(keys))
    ends = result["end_round"].values
    assert np.isfinite(ends).all()
    assert len(set(ends)) > 1
    for trial, end in enumerate(ends):
        times = result["sim_time_s"].sel(trial=trial)
        assert times.sel(round=end) >= 0.05
        assert (times.sel(round=slice(None, end - 1)).dropna("round") < 0.05).all()
        assert times.sel(round=slice(end + 1, None)).isnull().all()
    assert np.isfinite(select_final(result, "test_accuracy")).all()
    dead = {"battery_j": 2e-4, "kappa": 1e-22, "receive_w": 1e-3}
    keys = {"training.rounds": 200, "devices.compute": SLOW | dead, "transport": "ideal"}
    result = otafl.run(tree(keys | {"training.eval_every": 100}))
    assert (result["end_round"] < 200).all()
    assert (select_final(result, "present") == 0).all()
    np.testing.assert_allclose(select_final(result, "charge_j"), 0.0, atol=2e-13)
