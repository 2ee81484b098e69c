"""Who is selected: by channels, at random, in turn, and by updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import engine, equal, run, scenario
from support.refusals import assert_refused
from support.selections import (
    ALL,
    DOUBLE,
    FLAT,
    K,
    S,
    make_cohort,
    make_selection,
    make_state,
    to_sets,
)

from otafl.codecs.base import Codec, EncodedGroup
from otafl.core.contracts import Broadcast, Cohort, Context, Group, Payload, Tensors
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.engine.engine import Engine
from otafl.scenario import load_scenario
from otafl.scenario.errors import ScenarioError
from otafl.selection.selections import compute_squared_norms


@pytest.mark.exact
def test_best_channel() -> None:
    """By gain times mean |h|^2 over antennas and groups; ties go to the lower number."""
    power = torch.tensor([[3.0, 1.0, 2.0, 3.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    made = make_selection("best_channel")
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(power))) == [[0, 3], [3, 4]]
    near = torch.tensor([1.0, 10.0, 1.0, 1.0, 0.1])
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(power, near))) == [[0, 1], [1, 3]]
    free = ALL.copy()
    free[:, 3] = False
    assert to_sets(made.select_devices(free, 2, 0, make_state(power))) == [[0, 4], [2, 4]]
    cells = torch.ones(S, K, 2, 1, 3)
    cells[:, 1, 1, 0, 2] = 9.0
    cells[:, 4, 0, 0, 0] = 8.0
    assert to_sets(made.select_devices(ALL, 2, 0, make_state(cells))) == [[1, 4], [1, 4]]


@pytest.mark.exact
def test_best_channel_as_it_is_believed() -> None:
    believed = make_state(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]])).h
    true = make_state(torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0]).expand(S, -1))
    assert to_sets(make_selection("best_channel", believed).select_devices(ALL, 2, 0, true)) == [
        [3, 4],
        [0, 1],
    ]


@pytest.mark.exact
def test_threshold() -> None:
    """SNR = budget times gain: 1, 2, .. 5 in the first trial and twice that in the second; 3 dB is
    1.995 and 7 dB 5.01."""
    made = make_selection("threshold", min_snr_db=[3.0, 7.0])
    assert to_sets(made.select_devices(ALL, K, 0, FLAT)) == [[1, 2, 3, 4], [2, 3, 4]]
    busy = ALL.copy()
    busy[0, 2] = False
    assert to_sets(made.select_devices(busy, K, 0, FLAT)) == [[1, 3, 4], [2, 3, 4]]
    assert to_sets(made.select_devices(ALL, K, 0, make_state(torch.full((S, K), 0.1)))) == [[], []]
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).draw_uniform("selection", round, (K,)).numpy()
        chosen = to_sets(made.select_devices(ALL, 2, round, FLAT))
        for trial, heard in enumerate([[1, 2, 3, 4], [2, 3, 4]]):
            order = sorted(heard, key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])


@pytest.mark.exact
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
    assert not one.parts.clock.compute_spent_j().any()
    seconds = 3 * 32 * sum(block[0].numel() for block in before.values()) / 1e7
    np.testing.assert_allclose(one.parts.clock.get_time_s(), seconds, rtol=1e-12)


@pytest.mark.twin
def test_proportional_fair_twin() -> None:
    windows = [4.0, 50.0]
    made = make_selection("proportional_fair", window=windows)
    generator = torch.Generator().manual_seed(0)
    gain = torch.tensor([[1.0, 0.1, 5.0, 2.0, 0.5], [1.0, 1.0, 1.0, 20.0, 0.01]], dtype=DOUBLE)
    budget = np.arange(1.0, K + 1) * np.array([[1.0], [2.0]])
    throughput = np.log2(1 + budget * gain.numpy()) * 2 / K
    for t in range(60):
        power = torch.empty(S, K, dtype=DOUBLE).exponential_(generator=generator)
        free = ALL.copy()
        free[0, t % K] = False
        chosen = made.select_devices(free, 2, t, make_state(power, gain))
        for s in range(S):
            rate = np.log2(1 + budget[s] * gain[s].numpy() * power[s].numpy())
            order = sorted(np.nonzero(free[s])[0], key=lambda k: -rate[k] / throughput[s, k])
            assert to_sets(chosen)[s] == sorted(order[:2])
            for k in range(K):
                served = rate[k] if chosen[s, k] else 0.0
                throughput[s, k] += (served - throughput[s, k]) / windows[s]


@pytest.mark.twin
def test_uniform_takes_the_lowest_draws() -> None:
    free = ALL.copy()
    free[0, [1, 3]] = False
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).draw_uniform("selection", round, (K,)).numpy()
        chosen = to_sets(make_selection("uniform").select_devices(free, 2, round, FLAT))
        for trial in range(S):
            order = sorted(np.nonzero(free[trial])[0], key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])


@pytest.mark.exact
def test_a_number_of_participants_is_no_sampling() -> None:
    devices = {"count": 5, "participants": 3, "selection": "poisson"}
    load_scenario({"name": "x", "devices": devices})
    with pytest.raises(UserError, match=r"devices\.participants: got 3; with privacy\.clip"):
        load_scenario({"name": "x", "devices": devices, "privacy": {"clip": 1.0}})


@pytest.mark.exact
def test_round_robin_in_turn() -> None:
    made = make_selection("round_robin")
    rounds = [to_sets(made.select_devices(ALL, 3, t, FLAT))[1] for t in range(5)]
    assert rounds == [[0, 1, 2], [0, 3, 4], [1, 2, 3], [0, 1, 4], [2, 3, 4]]


@pytest.mark.exact
def test_round_robin_lets_a_busy_device_go_first_once_it_is_free() -> None:
    """Device 0 is busy in the first two rounds; trial 1 is as ever."""
    made = make_selection("round_robin")
    busy = ALL.copy()
    busy[0, 0] = False
    rounds = [
        made.select_devices(free, 2, t, FLAT) for t, free in enumerate([busy, busy, ALL, ALL])
    ]
    assert [to_sets(one)[0] for one in rounds] == [[1, 2], [3, 4], [0, 1], [2, 3]]
    assert [to_sets(one)[1] for one in rounds] == [[0, 1], [2, 3], [0, 4], [1, 2]]
    made = make_selection("round_robin")
    alone = np.tile(np.arange(K) == 3, (S, 1))
    assert to_sets(made.select_devices(alone, 2, 0, FLAT)) == [[3], [3]]
    assert to_sets(made.select_devices(ALL, 2, 1, FLAT)) == [[0, 1], [0, 1]]


@pytest.mark.exact
def test_norms_of_what_is_sent_over_the_uplink() -> None:
    column = torch.arange(1.0, 6.0, dtype=DOUBLE)[:, None]
    rows = torch.tensor([3, 0, 0])
    payload: Payload = (
        Group({"x": column.repeat(1, 2), "y": column[:, :, None].repeat(1, 1, 3)}),
        Group({"z": column[:3]}, row_index=rows),
        Group({"m": 10 * column.repeat(1, 2)}, mask={"m": torch.tensor([[1.0, 0.0]] * 5)}),
        Group({"b": 100 * column}, route="ideal", reason="a test"),
    )
    twin = [5 * k**2 + 100 * k**2 for k in range(1, 6)]
    for row, value in zip(rows.tolist(), [1, 2, 3], strict=True):
        twin[row] += value**2
    assert compute_squared_norms(payload, make_cohort()).tolist() == twin


@pytest.mark.exact
def test_the_largest_updates() -> None:
    made = make_selection("update_norm")
    assert made.select_devices(ALL, 2, 0, FLAT).all()

    def senders(who: Cohort, wanted: int) -> list[bool]:
        sends = made.select_transmitters(payload, who, wanted)
        assert sends is not None
        return sends.tolist()

    norms = torch.tensor([2.0, 3.0, 3.0, 1.0, 5.0], dtype=DOUBLE)[:, None]
    payload: Payload = (Group({"x": norms}),)
    assert senders(make_cohort(), 1) == [False, True, False, False, True]
    assert senders(make_cohort(), 2) == [False, True, True, True, True]
    assert all(senders(make_cohort(), 4))
    quiet = make_cohort([True, False, True, True, False])
    assert senders(quiet, 1) == [False, False, True, True, False]


class Widest(probes.Probe):
    """Device k's update has the norm (k + 1, or what `order` makes of it) sqrt(2)."""

    order = (1.0, 4.0, 2.0, 3.0)

    def payload(self, broadcast: Broadcast, cohort: Cohort, round: int) -> Payload:
        rows = broadcast.tensors["x"].new_tensor(self.order)[cohort.device]
        return (Group({"x": rows[:, None].repeat(1, self.width)}),)


BY_NORM = {
    "devices.selection": "update_norm",
    "devices.participants": 2,
    "transport": "ideal",
    "data.partition": "iid",
    "engine.dtype": "float64",
}


class Residual(Codec):
    """A codec with memory: sends one coordinate of what it has, keeps the rest for the next time
    (error feedback). Which one changes from round to round."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(self.Settings(), {}, streams)

    def init(self, payload: Payload) -> Tensors:
        return {"rest": torch.zeros_like(payload[0].tensors["x"])}

    def encode_group(
        self, group: Group, index: int, memory: Tensors, context: Context
    ) -> EncodedGroup:
        whole = group.tensors["x"] + memory["rest"]
        sent = torch.zeros_like(whole)
        place = context.round % whole.shape[1]
        sent[:, place] = whole[:, place]
        return Group({"x": sent}), {"rest": whole - sent}

    def count_bits(self, group: Group) -> float:
        return 64.0


def with_memory(one: Engine) -> Tensors:
    """The codec's memory after a round with the residual codec."""
    object.__setattr__(one.parts.link, "codec", Residual(one.parts.streams))
    run(one, 1)
    return one.memory.get_all()


@pytest.mark.exact
def test_only_the_largest_updates_are_sent() -> None:
    """Devices 1 and 3, of 75 samples each; all four train, and the codec sees the two alone."""
    one = run(engine(BY_NORM, probe=Widest), 1)
    (heard,) = one.parts.algorithm.heard
    assert heard.cohort.device.tolist() == [1, 3] * 3
    torch.testing.assert_close(one.server["x"], torch.full((3, 2), 3.5, dtype=DOUBLE))
    assert one.devices.get_all()["trained"].eq(1).all()
    assert (one.parts.clock.compute_spent_j()[..., 0] > 0).all()
    memory = with_memory(engine(BY_NORM, probe=Widest))["rest"]
    assert memory[:, :, 1].tolist() == [[0.0, 4.0, 0.0, 3.0]] * 3


@pytest.mark.exact
def test_what_does_not_go_with_a_choice_after_the_work() -> None:
    late = {"devices.late": "next", "devices.deadline_s": 1.0}
    cases: list[tuple[Any, str]] = [
        ((late,), "'next' cannot be combined with devices.selection: 'update_norm'"),
        (
            ({"devices.senders": 1},),
            r"devices\.senders: cannot be combined with devices\.selection: 'update",
        ),
        (
            ({"devices.protocol": "quorum"},),
            r"devices\.protocol: 'quorum' cannot be combined with .* use protocol: rounds",
        ),
    ]
    assert_refused(lambda case: scenario(BY_NORM | case[0]), cases, ScenarioError)
