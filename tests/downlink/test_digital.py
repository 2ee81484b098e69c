"""The digital downlink: times by hand, losses and repetitions against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.small import engine
from support.broadcasts import (
    BANDWIDTH_HZ,
    DOUBLE,
    FOUR,
    FULL,
    RATE_BPS,
    TEN,
    S,
    get_seconds,
    send,
)

from otafl.core.contracts import Broadcast, Cohort
from otafl.core.rng import Streams
from otafl.downlink.downlinks import DigitalDownlink

pytestmark = pytest.mark.exact


def test_broadcast() -> None:
    arrival = send()
    assert arrival.delivered_mask is None
    np.testing.assert_allclose(arrival.seconds, [0.1, 0.05])
    np.testing.assert_allclose(get_seconds(arrival), [0.1, 0.1, 0.1, 0.05])
    assert arrival.bits.tolist() == [320.0, 320.0]
    torch.testing.assert_close(
        arrival.expand_rows(FOUR, 1, 4).tensors["a"], torch.ones(3, 7, dtype=DOUBLE)
    )


@pytest.mark.parametrize("mode", ["broadcast", "unicast"])
def test_a_model_for_each_goes_to_each(mode: str) -> None:
    own = Broadcast({"a": torch.arange(8.0).view(4, 2)}, per_device=True)
    arrival = send(broadcast=own, mode=mode)
    np.testing.assert_allclose(get_seconds(arrival), [0.02, 0.04, 0.06, 0.01])
    assert arrival.bits.tolist() == [192.0, 64.0]
    parts = Broadcast(TEN.tensors, coordinates_per_row=torch.tensor([1, 10, 4, 2]))
    arrival = send(broadcast=parts, mode=mode)
    np.testing.assert_allclose(get_seconds(arrival), [0.01, 0.11, 0.15, 0.01])
    assert arrival.bits.tolist() == [15 * 32.0, 2 * 32.0]


def uniform(purpose: str, who: Cohort, attempts: int, round: int) -> np.ndarray:
    """[N, A], drawn for each row by itself."""
    streams = Streams([2, 2], [0, 1], dtype=DOUBLE)
    rows = zip(who.trial.tolist(), who.device.tolist(), strict=True)
    draws = [
        streams.draw_device_uniform(
            purpose, round, torch.tensor([s]), torch.tensor([k]), (attempts,)
        )
        for s, k in rows
    ]
    return torch.cat(draws).numpy()


def gains(who: Cohort, attempts: int, round: int) -> np.ndarray:
    return -np.log(uniform("downlink/gain", who, attempts, round))


class Twin:
    """Rows that are served attempt by attempt."""

    def __init__(self, who: Cohort, lost: np.ndarray, rate: np.ndarray, unicast: bool) -> None:
        trials, attempts = who.trial.numpy(), lost.shape[1]
        self.heard = np.zeros(who.num_rows, dtype=bool)
        self.row_seconds = np.zeros(who.num_rows)
        self.seconds, self.copies = np.zeros(S), np.zeros(S)
        for s in range(S):
            rows = np.flatnonzero(trials == s)
            turns = [[row] for row in rows] if unicast else [list(rows)]
            for turn in turns:
                missing = turn
                for a in range(attempts):
                    if not missing:
                        break
                    self.seconds[s] += 320 / min(rate[row, a] for row in missing)
                    self.copies[s] += 1
                    for row in missing:
                        self.row_seconds[row] = self.seconds[s]
                        self.heard[row] = not lost[row, a]
                    missing = [row for row in missing if lost[row, a]]


@pytest.mark.parametrize(
    ("mode", "rate", "attempts"),
    [("broadcast", "given", 1), ("unicast", "outage", 3), ("broadcast", "channel", 3)],
)
def test_against_a_plain_loop(mode: str, rate: str, attempts: int) -> None:
    """Of many losses, in ten rounds of all devices and of some."""
    numbers = {"loss": [0.5, 0.3], "outage": [0.2, 0.4], "snr_db": [0.0, 10.0]}
    snr, unit = np.array([1.0, 10.0]), -np.log(1 - np.array([0.2, 0.4]))
    some = 0
    for round in range(10):
        who = (FULL, FOUR)[round % 2]
        trial = who.trial.numpy()
        lost = uniform("downlink/loss", who, attempts, round) < np.array([0.5, 0.3])[trial, None]
        bits_s = np.broadcast_to(RATE_BPS[trial, None], lost.shape)
        if rate != "given":
            gain = gains(who, attempts, round)
            if rate == "outage":
                lost = lost | (gain < unit[trial, None])
                gain = np.broadcast_to(unit[trial, None], lost.shape)
            bandwidth = np.array(BANDWIDTH_HZ)[trial, None]
            bits_s = bandwidth * np.log2(1 + snr[trial, None] * gain)
        twin = Twin(who, lost, bits_s, mode == "unicast")
        arrival = send(who, round=round, numbers=numbers, mode=mode, rate=rate, attempts=attempts)
        assert arrival.delivered_mask is not None
        np.testing.assert_array_equal(arrival.delivered_mask.numpy(), twin.heard)
        np.testing.assert_allclose(get_seconds(arrival), twin.row_seconds, rtol=1e-12)
        np.testing.assert_allclose(arrival.seconds, twin.seconds, rtol=1e-12)
        np.testing.assert_array_equal(arrival.bits, 320 * twin.copies)
        some += int(twin.heard.sum())
    assert 0 < some < 10 * 8


def test_outage_rate() -> None:
    """B log2(1 + gamma (-ln(1 - epsilon))): at 20 dB and 0.1, 3.5281 bits a symbol."""
    arrival = send(rate="outage", numbers={"snr_db": [20.0, 20.0]})
    np.testing.assert_allclose(arrival.seconds, 320 / np.array(BANDWIDTH_HZ) / 3.52808, rtol=1e-5)


def test_those_who_miss_the_broadcast_sit_the_round_out() -> None:
    """As many as heard it train and are aggregated; the round goes on, also where nobody did."""
    keys = {"downlink": {"name": "digital", "loss": 0.7}, "transport": "ideal"}
    one = engine(keys | {"devices.compute": {"name": "fixed", "flops_per_s": 1e100}})
    made = DigitalDownlink(DigitalDownlink.Settings(loss=0.7), one.parts.downlink.setup)
    everyone = one.select_cohort(None, 0)
    broadcast = one.parts.algorithm.broadcast(one.server, everyone)
    for t in range(6):
        heard = made.send(broadcast, everyone, t).delivered_mask
        assert heard is not None
        one.run_round(t)
        took_part = one.means.take()["participants"]
        assert took_part.tolist() == heard.view(3, 4).sum(1).tolist()
    assert one.server["model"].isfinite().all()
