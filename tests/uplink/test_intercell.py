"""What a server hears of other servers' devices, by a plain complex loop and its mean power."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine
from support.marks import first_is_fast

from otafl.core.contracts import Cohort, Group, LinkReport
from otafl.engine.engine import Engine
from otafl.uplink.base import deliver

SERVERS, DEVICES, TRIALS = 3, 4, 2
CELLS: dict[str, Any] = {
    "topology": {"name": "cells", "servers": SERVERS, "cross_gain_db": -6},
    "engine.dtype": "float64",
    "algorithm": "fedavg",
    "data.partition": "iid",
}


def heard(changes: dict[str, Any], reals: int, round: int = 0) -> tuple[Engine, Any, Any, Any]:
    """An engine, a payload's rows [n, P], the report of its delivery, and what is received more
    than without neighbours [S C, P]. Weights of the devices are 1, 2 and 3 in turn."""
    keys = CELLS | {"output.save_link": True}
    one = engine(keys | changes, range(TRIALS))
    channel = one.draw_channel(round)
    who = one.select_cohort(one.find_available(round), round, channel)
    weight = 1.0 + torch.arange(who.num_rows).double() % 3
    who = Cohort.create(who.trial, who.device, weight, who.counts, who.num_devices)
    x = torch.randn(who.num_rows, reals, generator=torch.Generator().manual_seed(3)).double()
    payload = (Group({"w": x}),)
    link = one.parts.link.transport
    received, report = deliver(link, payload, who, channel, round)
    link.neighbours = None
    alone, _ = deliver(link, payload, who, channel, round)
    more = received.mean[0]["w"] - alone.mean[0]["w"]
    return one, (who, x.numpy()), report, more.numpy()


def looped(one: Engine, sent: Any, report: LinkReport, around: Any, stops: list[int]) -> Any:
    """Add up what each server hears, device by device and symbol by symbol, as complex numbers."""
    who, x = sent
    saved = {name: value.numpy() for name, value in report.saved_tensors.items()}
    p, eta = saved["p/0"], saved["eta/0"]
    state = around.channel.get_state(0)
    h = (state.gain.sqrt()[:, :, None, None, None] * state.h).numpy()[:, :, 0]
    h = h.reshape(*h.shape[:2], -1)
    pairs = list(zip(who.trial.tolist(), who.device.tolist(), strict=True))
    out = np.zeros((len(p), x.shape[1]), complex)
    for row in range(len(p)):
        trial, server = divmod(row, SERVERS)
        for place, other in enumerate(around.interferers[server]):
            there = trial * SERVERS + other
            weights = who.weight.numpy()[who.trial.numpy() == there]
            for k in range(DEVICES):
                at = pairs.index((there, k))
                scale = len(weights) * who.weight[at].item() / weights.sum()
                for column in range(x.shape[1]):
                    q = int(np.searchsorted(stops, column, side="right"))
                    y = h[row, place * DEVICES + k, q] * p[there, q, k] * scale * x[at, column]
                    out[row, column] += y / np.sqrt(eta[row, q]) / DEVICES
    return out


@pytest.mark.exact
@pytest.mark.parametrize("channel", ["rayleigh", "tdl-a"])
def test_it_is_their_signals(channel: str) -> None:
    section = {"name": channel} | ({"subcarrier_groups": 2} if channel == "tdl-a" else {})
    one, sent, report, more = heard({"channel": section, "power": "ci"}, 10)
    around = engine_neighbours({"channel": section, "power": "ci"})
    stops = [10] if channel == "rayleigh" else [5, 10]
    expected = looped(one, sent, report, around, stops).real
    np.testing.assert_allclose(more, expected, rtol=1e-9, atol=1e-12)
    energy = report.saved_tensors["neighbours/0"].numpy().sum(1)
    eta = report.saved_tensors["eta/0"].numpy()
    if channel == "rayleigh":  # what is saved is its energy before it is scaled
        np.testing.assert_allclose(energy / eta[:, 0] / DEVICES**2, (more**2).sum(1), rtol=1e-9)


def engine_neighbours(changes: dict[str, Any]) -> Any:
    """What servers receive of other servers' devices, and the channel from these."""
    return engine(CELLS | changes, range(TRIALS)).parts.link.transport.neighbours


@pytest.mark.exact
@pytest.mark.parametrize("moves", first_is_fast([True, False]))
def test_a_server_at_several_places(moves: bool) -> None:
    """On a torus of three cells each of the two others is seen at nine places, over channels of
    their own; standing devices and devices that move."""
    way = {"mobility": "linear", "speed_kmh": 30} if moves else {}
    keys: dict[str, Any] = {"channel": {"name": "umi", "subcarrier_groups": 2} | way, "power": "ci"}
    keys["topology"] = {"name": "hierarchical", "servers": SERVERS}
    one, sent, report, more = heard(keys, 10)
    around = engine_neighbours(keys)
    assert [sorted(own) for own in around.interferers] == [[1] * 9 + [2] * 9, [0] * 9 + [2] * 9,
                                                     [0] * 9 + [1] * 9]  # fmt: skip
    expected = looped(one, sent, report, around, [5, 10]).real
    np.testing.assert_allclose(more, expected, rtol=1e-9, atol=1e-12)
    h = around.channel.get_state(0).h.unflatten(1, (-1, DEVICES))  # [S C, 18, K, A, B, F]
    assert len(h.flatten().abs().unique()) == h.numel()


@pytest.mark.exact
def test_power_at_other_servers_is_that_of_the_summed_channel() -> None:
    """Of a device that reaches a server from nine places, over all antennas: |sum of h|^2."""
    keys: dict[str, Any] = {"channel": {"name": "umi", "antennas": 2}, "power": "ci"}
    around = engine_neighbours(keys | {"topology": {"name": "cells", "servers": SERVERS}})
    slot: Any = SimpleNamespace(round=3, num_uses=10)
    found = around.power_gains(slot).numpy()
    state = around.channel.get_state(3)
    h = (state.extend_to(10).flatten(3) * state.gain.sqrt()[:, :, None, None]).numpy()
    expected = np.zeros_like(found)
    for row in range(len(h)):
        trial, server = divmod(row, SERVERS)
        for other in {*around.interferers[server]}:
            places = np.flatnonzero(np.array(around.interferers[server]) == other)
            for k in range(DEVICES):
                total = sum(h[row, place * DEVICES + k] for place in places)  # [A, cells]
                expected[trial * SERVERS + other, k] += (np.abs(total) ** 2).sum(0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.exact
def test_two_reals_a_symbol_are_one_complex_number() -> None:
    """The second quadrature of what is heard is that of the complex product."""
    keys = {"channel": {"name": "rayleigh"}, "power": "ci"}
    keys["transport"] = {"name": "over_the_air", "quadrature": True}
    one, (who, x), report, more = heard(keys, 6)
    sent = who, x[:, :3] + 1j * x[:, 3:]
    y = looped(one, sent, report, engine_neighbours(keys), [3])
    np.testing.assert_allclose(more, np.hstack([y.real, y.imag]), rtol=1e-9, atol=1e-12)
