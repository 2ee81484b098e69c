"""The analogue downlink against a twin written out, and what the engine makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from support.broadcasts import (
    BANDWIDTH_HZ,
    FOUR,
    RATE_BPS,
    SNR_DB,
    make_per_device,
    make_setup,
    make_shared,
)

from otafl.core.contracts import Broadcast
from otafl.downlink.downlinks import AnalogDownlink

pytestmark = pytest.mark.exact


def analog(**config: Any) -> AnalogDownlink:
    return AnalogDownlink(AnalogDownlink.Settings(**config), make_setup())


@pytest.mark.parametrize(
    ("sent", "fading", "estimator"),
    [(make_shared(), True, "mmse"), (make_per_device(), False, "inversion")],
    ids=["shared", "own"],
)
def test_analog_twin(sent: Broadcast, fading: bool, estimator: str) -> None:
    """Device k hears x + e, e of variance m / (2 gamma |h|^2), times s with mmse; m is the mean
    square over what is sent uncoded."""
    round, rows, streams = 6, FOUR, make_setup().streams
    arrival = analog(fading=fading, estimator=estimator).send(sent, rows, round)
    heard = arrival.expand_rows(rows, 0, 4)
    assert heard.per_device
    for row in range(4):
        trial, device = int(rows.trial[row]), int(rows.device[row])
        at = row if sent.per_device else trial
        x = {n: b[at].numpy() for n, b in sent.tensors.items() if n != "count"}
        m = np.mean(np.concatenate([block.ravel() for block in x.values()]) ** 2)
        pair = torch.tensor([trial]), torch.tensor([device])
        snr = 2 * 10 ** (SNR_DB[trial] / 10)
        if fading:
            draw = streams.draw_device_normal("downlink_fading", round, *pair, (2,))[0].numpy()
            snr *= (draw[0] ** 2 + draw[1] ** 2) / 2
        shrink = snr / (1 + snr) if estimator == "mmse" else 1.0
        for name, block in x.items():
            z = streams.draw_device_normal(f"downlink/{name}", round, *pair, block.shape)[0].numpy()
            expected = shrink * (block + np.sqrt(m / snr) * z)
            np.testing.assert_allclose(heard.tensors[name][row].numpy(), expected, rtol=1e-12)
        if "count" in sent.tensors:
            assert torch.equal(heard.tensors["count"][row], sent.tensors["count"][at])


def test_the_cost_of_analog() -> None:
    """Ten reals a broadcast at a real a symbol, and four words: three integers and the mean square.
    Broadcasts that differ go out one after the other."""
    arrival = analog().send(make_shared(), FOUR, 0)
    seconds = [10 / b + 4 * 32 / r for b, r in zip(BANDWIDTH_HZ, RATE_BPS, strict=True)]
    np.testing.assert_allclose(arrival.seconds, seconds, rtol=1e-12)
    assert arrival.bits.tolist() == [4 * 32.0] * 2
    arrival = analog().send(make_per_device(), FOUR, 0)
    seconds = [n * (5 / b + 32 / r) for n, b, r in zip((3, 1), BANDWIDTH_HZ, RATE_BPS, strict=True)]
    np.testing.assert_allclose(arrival.seconds, seconds, rtol=1e-12)
    assert arrival.bits.tolist() == [3 * 32.0, 32.0]


NOISY = {"downlink": {"name": "analog", "snr_db": 0.0}, "transport": "ideal"}


def test_devices_send_the_increment_to_what_they_heard() -> None:
    """With a step of nothing the increments are zero, however noisy the downlink."""
    one = engine(NOISY | {"algorithm.learning_rate": 1e-30, "engine.dtype": "float64"})
    before = one.server["model"].clone()
    run(one, 3)
    torch.testing.assert_close(one.server["model"], before, rtol=0, atol=1e-12)
