"""Device selection against twins written out, and what the engine makes of it.

Mutations that make a test here fail: the largest of the uniform draws, ties by the higher number,
busy devices chosen, the queue of round robin not moved, moved for those who were busy too, or
filled by number; the smallest gain, the true channel in place of the estimate, the first antenna
alone, large-scale gain left out; throughput not forgotten, not earned, earned by all, a rate
without the budget, one window for all trials; a threshold in linear units, on the gain alone, the
best in place of a random choice among those above it; the smallest norm, blocks on the ideal route
counted, a mask ignored, norms given to the wrong rows, devices that do not send counted; a codec
that sees the updates of those not chosen, side information left out, the shortcut of a full slot
taken when others than the chosen made it, nobody's round combined, `narrows` of the threshold
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import close, engine, equal, run, scenario, scores
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import Blocks, Broadcast, ChannelState, Cohort, Group, LinkBudget, Payload
from otafl.core.rng import Streams
from otafl.engine.engine import Engine
from otafl.scenario.errors import ScenarioError
from otafl.selection.choosing import SelectionSetup
from otafl.selection.update_norm import squared_norms

S, K = 2, 5
DOUBLE = torch.float64
NAMES = registry.names("selection")


class Believed:
    """Devices are believed to have the channel that is given, or else the true one."""

    variance = None
    pilot_symbols = 0

    def __init__(self, h_hat: Tensor | None = None) -> None:
        self.h_hat = h_hat

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h if self.h_hat is None else self.h_hat


def selection(name: str, believed: Tensor | None = None, **hyper: list[float]) -> Any:
    """Of S trials with budgets 1, 2, .. K, doubled in the second."""
    budget = torch.arange(1.0, K + 1, dtype=DOUBLE).expand(S, -1) * torch.tensor([[1.0], [2.0]])
    ones = torch.ones(S, dtype=DOUBLE)
    link = LinkBudget(budget, torch.ones_like(budget), ones, ones, ones.bool())
    settings = {key: torch.tensor(values, dtype=DOUBLE) for key, values in hyper.items()}
    setup = SelectionSetup(
        Believed(believed), link, Streams([1, 1], [0, 1], dtype=DOUBLE), settings
    )
    config = registry.settings("selection", name)()
    return registry.component("selection", name)(config, setup)


def state(power: Any, gain: Any = 1.0) -> ChannelState:
    """Of |h|^2 [S, K] or [S, K, A, 1, F], with some phase."""
    power = torch.as_tensor(power, dtype=DOUBLE)
    power = power if power.dim() == 5 else power[:, :, None, None, None]
    phase = torch.arange(power.numel(), dtype=DOUBLE).view_as(power)
    return ChannelState(torch.polar(power.sqrt(), phase), torch.as_tensor(gain) + torch.zeros(S, K))


ALL = np.ones((S, K), bool)
FLAT = state(torch.ones(S, K))


def sets(chosen: np.ndarray) -> list[list[int]]:
    assert chosen.shape == (S, K)
    assert chosen.dtype == bool
    return [np.nonzero(row)[0].tolist() for row in chosen]


def test_uniform_takes_the_lowest_draws() -> None:
    free = ALL.copy()
    free[0, [1, 3]] = False
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).uniform("selection", round, (K,)).numpy()
        chosen = sets(selection("uniform").choose(free, 2, round, FLAT))
        for trial in range(S):
            order = sorted(np.nonzero(free[trial])[0], key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("threshold", "update_norm")])
def test_fewer_are_free_than_wanted(name: str) -> None:
    free = np.zeros((S, K), bool)
    free[0, 2] = free[0, 4] = True
    made = selection(name, window=[10.0, 10.0])
    assert sets(made.choose(free, 3, 0, FLAT)) == [[2, 4], []]


def test_round_robin_in_turn() -> None:
    made = selection("round_robin")
    rounds = [sets(made.choose(ALL, 3, t, FLAT))[1] for t in range(5)]
    assert rounds == [[0, 1, 2], [0, 3, 4], [1, 2, 3], [0, 1, 4], [2, 3, 4]]


def test_round_robin_lets_a_busy_device_go_first_once_it_is_free() -> None:
    """Device 0 is busy in the first two rounds; trial 1 is as ever."""
    made = selection("round_robin")
    busy = ALL.copy()
    busy[0, 0] = False
    rounds = [made.choose(free, 2, t, FLAT) for t, free in enumerate([busy, busy, ALL, ALL])]
    assert [sets(one)[0] for one in rounds] == [[1, 2], [3, 4], [0, 1], [2, 3]]
    assert [sets(one)[1] for one in rounds] == [[0, 1], [2, 3], [0, 4], [1, 2]]
    made = selection("round_robin")
    alone = np.tile(np.arange(K) == 3, (S, 1))
    assert sets(made.choose(alone, 2, 0, FLAT)) == [[3], [3]]
    assert sets(made.choose(ALL, 2, 1, FLAT)) == [[0, 1], [0, 1]]


def test_best_channel() -> None:
    """By gain times mean |h|^2 over antennas and groups; ties go to the lower number."""
    power = torch.tensor([[3.0, 1.0, 2.0, 3.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    made = selection("best_channel")
    assert sets(made.choose(ALL, 2, 0, state(power))) == [[0, 3], [3, 4]]
    near = torch.tensor([1.0, 10.0, 1.0, 1.0, 0.1])
    assert sets(made.choose(ALL, 2, 0, state(power, near))) == [[0, 1], [1, 3]]
    free = ALL.copy()
    free[:, 3] = False
    assert sets(made.choose(free, 2, 0, state(power))) == [[0, 4], [2, 4]]
    cells = torch.ones(S, K, 2, 1, 3)
    cells[:, 1, 1, 0, 2] = 9.0
    cells[:, 4, 0, 0, 0] = 8.0
    assert sets(made.choose(ALL, 2, 0, state(cells))) == [[1, 4], [1, 4]]


def test_best_channel_as_it_is_believed() -> None:
    believed = state(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]])).h
    true = state(torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]).expand(S, -1))
    assert sets(selection("best_channel", believed).choose(ALL, 2, 0, true)) == [[3, 4], [0, 1]]


def test_proportional_fair_twin() -> None:
    windows = [4.0, 50.0]
    made = selection("proportional_fair", window=windows)
    generator = torch.Generator().manual_seed(0)
    gain = torch.tensor([[1.0, 0.1, 5.0, 2.0, 0.5], [1.0, 1.0, 1.0, 20.0, 0.01]], dtype=DOUBLE)
    budget = np.arange(1.0, K + 1) * np.array([[1.0], [2.0]])
    throughput = np.log2(1 + budget * gain.numpy()) * 2 / K
    for t in range(60):
        power = torch.empty(S, K, dtype=DOUBLE).exponential_(generator=generator)
        free = ALL.copy()
        free[0, t % K] = False
        chosen = made.choose(free, 2, t, state(power, gain))
        for s in range(S):
            rate = np.log2(1 + budget[s] * gain[s].numpy() * power[s].numpy())
            order = sorted(np.nonzero(free[s])[0], key=lambda k: -rate[k] / throughput[s, k])
            assert sets(chosen)[s] == sorted(order[:2])
            for k in range(K):
                served = rate[k] if chosen[s, k] else 0.0
                throughput[s, k] += (served - throughput[s, k]) / windows[s]


def test_threshold() -> None:
    """SNR = budget times gain: 1, 2, .. 5 in the first trial and twice that in the second; 3 dB is
    1.995 and 7 dB 5.01."""
    made = selection("threshold", min_snr_db=[3.0, 7.0])
    assert sets(made.choose(ALL, K, 0, FLAT)) == [[1, 2, 3, 4], [2, 3, 4]]
    busy = ALL.copy()
    busy[0, 2] = False
    assert sets(made.choose(busy, K, 0, FLAT)) == [[1, 3, 4], [2, 3, 4]]
    assert sets(made.choose(ALL, K, 0, state(torch.full((S, K), 0.1)))) == [[], []]
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).uniform("selection", round, (K,)).numpy()
        chosen = sets(made.choose(ALL, 2, round, FLAT))
        for trial, heard in enumerate([[1, 2, 3, 4], [2, 3, 4]]):
            order = sorted(heard, key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])


def cohort(sends: list[bool] | None = None) -> Cohort:
    """Devices 0, 2, 3 of the first trial, 1 and 4 of the second."""
    trial, device = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 2, 3, 1, 4])
    made = Cohort.fresh(trial, device, torch.ones(5, dtype=DOUBLE), (3, 2), K)
    if sends is None:
        return made
    made.sends.copy_(torch.tensor(sends))
    return made


def test_norms_of_what_is_sent_over_the_uplink() -> None:
    column = torch.arange(1.0, 6.0, dtype=DOUBLE)[:, None]
    rows = torch.tensor([3, 0, 0])
    payload: Payload = (
        Group({"x": column.repeat(1, 2), "y": column[:, :, None].repeat(1, 1, 3)}),
        Group({"z": column[:3]}, rows=rows),
        Group({"m": 10 * column.repeat(1, 2)}, mask={"m": torch.tensor([[1.0, 0.0]] * 5)}),
        Group({"b": 100 * column}, route="ideal", reason="a test"),
    )
    twin = [5 * k**2 + 100 * k**2 for k in range(1, 6)]
    for row, value in zip(rows.tolist(), [1, 2, 3], strict=True):
        twin[row] += value**2
    assert squared_norms(payload, cohort()).tolist() == twin


def test_the_largest_updates() -> None:
    made = selection("update_norm")
    assert made.choose(ALL, 2, 0, FLAT).all()
    norms = torch.tensor([2.0, 3.0, 3.0, 1.0, 5.0], dtype=DOUBLE)[:, None]
    payload: Payload = (Group({"x": norms}),)
    assert made.senders(payload, cohort(), 1).tolist() == [False, True, False, False, True]
    assert made.senders(payload, cohort(), 2).tolist() == [False, True, True, True, True]
    assert made.senders(payload, cohort(), 4).all()
    quiet = cohort([True, False, True, True, False])
    assert made.senders(payload, quiet, 1).tolist() == [False, False, True, True, False]


# ---- in the engine


@pytest.mark.parametrize("name", NAMES)
def test_stacked_is_alone_and_so_many_take_part(name: str) -> None:
    keys = {
        "devices.selection": name,
        "devices.participants": 2,
        "channel.snr_db": 10.0,
        "csi": "pilots",
    }
    whole = run(engine(keys), 4)
    alone = run(engine(keys, trials=[1]), 4)
    close(
        {view: value[1] for view, value in scores(whole).items()},
        {view: value[0] for view, value in scores(alone).items()},
        1e-4,
    )
    equal(scores(run(engine(keys), 4)), scores(whole))
    participants = whole.means.take()["participants"]
    if name == "threshold":
        assert (participants < 2).any()
    else:
        assert participants.tolist() == [2.0] * 3


def side_symbols(keys: Mapping[str, Any]) -> float:
    return float(run(engine(keys, trials=[0]), 1).means.take()["side_symbols"][0])


def test_side_information() -> None:
    """Beside a real a sender for its power: choosing by the channel takes the pilots of all four
    devices, of which the senders' are counted anyway; norms are one symbol each."""
    base = {"devices.participants": 2, "csi": {"name": "pilots", "length": 3}}
    senders = 2 * (1 + 3)
    for name in ("uniform", "round_robin"):
        assert side_symbols(base | {"devices.selection": name}) == senders
    for name in ("best_channel", "proportional_fair"):
        assert side_symbols(base | {"devices.selection": name}) == senders + 2 * 3
    low = {"name": "threshold", "min_snr_db": -200.0}
    assert side_symbols(base | {"devices.selection": low}) == senders + 2 * 3
    assert side_symbols(base | {"devices.selection": "update_norm"}) == senders + 4
    perfect = {"devices.participants": 2, "devices.selection": "best_channel"}
    assert side_symbols(perfect) == 2


def test_pilots_of_those_who_are_not_busy() -> None:
    """Three of five are free in the first trial and all in the second; three and two are chosen."""
    made = selection("best_channel")
    made._setup.csi.pilot_symbols = 7
    free = ALL.copy()
    free[0, :2] = False
    assert made.side_symbols(free, cohort()).tolist() == [0.0, 3 * 7.0]
    assert made.side_symbols(None, cohort()).tolist() == [2 * 7.0, 3 * 7.0]


def test_a_round_in_which_nobody_takes_part() -> None:
    """Nothing is learned or sent; time passes for the broadcast."""
    keys = {"devices.selection": {"name": "threshold", "min_snr_db": 200.0}}
    one = engine(keys)
    before = {name: block.clone() for name, block in one.server.items()}
    run(one, 3)
    equal(one.server, before)
    taken = one.means.take()
    for name in ("participants", "uplink_symbols", "side_symbols", "airtime_s", "radio_j"):
        assert not taken[name].any()
    assert not one.parts.clock.spent_j().any()
    seconds = 3 * 32 * sum(block[0].numel() for block in before.values()) / 1e7
    np.testing.assert_allclose(one.parts.clock.now(), seconds, rtol=1e-12)


def test_a_threshold_that_some_trials_miss() -> None:
    """On a channel that does not fade, trial by trial: those with the lower SNR learn nothing."""
    keys: dict[str, Any] = {
        "devices.selection": {"name": "threshold", "min_snr_db": 15.0},
        "channel": "awgn",
        "sweep": {"channel.snr_db": [10.0, 20.0]},
        "trials": 1,
    }
    one = engine(keys)
    before = one.server["model"].clone()
    run(one, 2)
    assert one.means.take()["participants"].tolist() == [0.0, 4.0]
    assert torch.equal(one.server["model"][0], before[0])
    assert not torch.equal(one.server["model"][1], before[1])


class Widest(probes.Probe):
    """Device k's update has the norm (k + 1, or what `order` makes of it) sqrt(2)."""

    order = (1.0, 4.0, 2.0, 3.0)

    def payload(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Payload:
        rows = broadcast.blocks["x"].new_tensor(self.order)[cohort.device]
        return (Group({"x": rows[:, None].repeat(1, self.width)}),)


BY_NORM = {
    "devices.selection": "update_norm",
    "devices.participants": 2,
    "transport": "ideal",
    "data.partition": "iid",
    "engine.dtype": "float64",
}


def with_memory(one: Engine) -> Blocks:
    """The codec's memory after a round with the residual codec."""
    object.__setattr__(one.parts.link, "codec", probes.Residual())
    run(one, 1)
    return one.memory


def test_only_the_largest_updates_are_sent() -> None:
    """Devices 1 and 3, of 75 samples each; all four train, and the codec sees the two alone."""
    one = run(engine(BY_NORM, probe=Widest), 1)
    (heard,) = one.parts.algorithm.heard
    assert heard.cohort.device.tolist() == [1, 3] * 3
    torch.testing.assert_close(one.server["x"], torch.full((3, 2), 3.5, dtype=DOUBLE))
    assert one.devices.blocks()["trained"].eq(1).all()
    assert (one.parts.clock.spent_j()[..., 0] > 0).all()
    memory = with_memory(engine(BY_NORM, probe=Widest))["rest"].view(3, 4, 2)
    assert memory[:, :, 1].tolist() == [[0.0, 4.0, 0.0, 3.0]] * 3


def test_chosen_devices_that_miss_the_slot() -> None:
    """Device 1, chosen with 3, is too slow; that as many others made the slot changes nothing."""
    keys = BY_NORM | {
        "devices.compute": {"name": "classes", "classes": [1e3, 1.0, 1e3, 1e3]},
        "devices.deadline_s": 0.5,
    }
    one = run(engine(keys, probe=Widest), 2)
    for heard in one.parts.algorithm.heard:
        assert heard.cohort.device.tolist() == [3] * 3
    both = {"devices.compute": {"name": "classes", "classes": [1e3, 1.0, 1e3, 1.0]}}
    one = run(engine(keys | both, probe=Widest), 1)
    assert one.parts.algorithm.heard == []


def test_update_norm_does_not_go_with_late_updates() -> None:
    text = "'next' does not go with devices.selection: 'update_norm'"
    with pytest.raises(ScenarioError, match=text):
        scenario(BY_NORM | {"devices.late": "next", "devices.deadline_s": 1.0})
