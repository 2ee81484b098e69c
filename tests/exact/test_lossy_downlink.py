"""The digital downlink: times by hand, losses and repetitions by their laws.

Mutations that make a test here fail: a model for each that is broadcast, a unicast that begins anew
for each trial's neighbours, rows in another trial's turn, all rows served when the last one is, a
broadcast that goes on when all have it or stops when one has, an attempt too many or too few, a
repetition at no cost in bits, the rate of the strongest, of those who have it already, of another
trial or of a real symbol, a fade for all attempts, devices or rounds, an outage at its complement,
a loss without the outage or the other way, integers left out, sizes of others in place of a row's
own, an arrival cut without its blocks, noise or times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from scipy import stats
from torch import Tensor

from otafl.core.contracts import Broadcast, Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.downlink.config import DigitalDownlinkConfig
from otafl.downlink.digital import DigitalDownlink
from otafl.downlink.downlink import AnalogDownlink, Arrival, DownlinkSetup
from otafl.transport.config import AnalogDownlinkConfig

S, K = 2, 6
DOUBLE = torch.float64
RATE_BPS = np.array([3.2e3, 6.4e3])
BANDWIDTH_HZ = [1e3, 4e3]
FALSE_ALARM = 1e-3
TEN = Broadcast({"a": torch.ones(S, 7, dtype=DOUBLE), "count": torch.ones(S, 3).long()})
"""320 bits: 0.1 s and 0.05 s."""


def setup(**hyper: list[float]) -> DownlinkSetup:
    fields = {"snr_db": [20.0] * S, "outage": [0.1] * S, "loss": [0.0] * S} | hyper
    table, row = torch.ones(S, K, dtype=DOUBLE), torch.ones(S, dtype=DOUBLE)
    bandwidth = torch.tensor(BANDWIDTH_HZ, dtype=DOUBLE)
    budget = LinkBudget(table, table, row, bandwidth, row.bool())
    numbers = {name: torch.tensor(values, dtype=DOUBLE) for name, values in fields.items()}
    return DownlinkSetup(RATE_BPS, budget, Streams([2, 2], [0, 1], dtype=DOUBLE), numbers)


def cohort(first: list[int], second: list[int]) -> Cohort:
    trial = torch.tensor([0] * len(first) + [1] * len(second))
    device = torch.tensor(first + second)
    weight = torch.ones(len(trial), dtype=DOUBLE)
    return Cohort.fresh(trial, device, weight, (len(first), len(second)), K)


FOUR = cohort([0, 1, 3], [2])
FULL = cohort(list(range(K)), list(range(K)))


def send(
    who: Cohort = FOUR,
    broadcast: Broadcast = TEN,
    round: int = 0,
    numbers: dict[str, list[float]] | None = None,
    **config: Any,
) -> Arrival:
    made = DigitalDownlink(DigitalDownlinkConfig(**config), setup(**(numbers or {})))
    return made.send(broadcast, who, round)


def seconds(arrival: Arrival) -> np.ndarray:
    assert arrival.row_seconds is not None
    return arrival.row_seconds


def test_broadcast() -> None:
    arrival = send()
    assert arrival.heard is None
    np.testing.assert_allclose(arrival.seconds, [0.1, 0.05])
    np.testing.assert_allclose(seconds(arrival), [0.1, 0.1, 0.1, 0.05])
    assert arrival.bits.tolist() == [320.0, 320.0]
    torch.testing.assert_close(arrival.rows(FOUR, 1, 4).blocks["a"], torch.ones(3, 7, dtype=DOUBLE))


def test_unicast() -> None:
    """One after the other."""
    arrival = send(mode="unicast")
    np.testing.assert_allclose(arrival.seconds, [0.3, 0.05])
    np.testing.assert_allclose(seconds(arrival), [0.1, 0.2, 0.3, 0.05])
    assert arrival.bits.tolist() == [960.0, 320.0]


def test_times_do_not_depend_on_the_stack() -> None:
    """Bit for bit: the clock orders events by them."""
    thirds = {"snr_db": [3.0, 3.0]}
    whole = send(cohort([0, 1, 2, 3], [0, 4, 5]), mode="unicast", rate="channel", numbers=thirds)
    other = send(cohort([], [0, 4, 5]), mode="unicast", rate="channel", numbers=thirds)
    assert seconds(whole)[4:].tolist() == seconds(other).tolist()
    assert whole.seconds[1] == other.seconds[1]
    assert other.seconds[0] == other.bits[0] == 0


@pytest.mark.parametrize("mode", ["broadcast", "unicast"])
def test_a_model_for_each_goes_to_each(mode: str) -> None:
    own = Broadcast({"a": torch.arange(8.0).view(4, 2)}, per_device=True)
    arrival = send(broadcast=own, mode=mode)
    np.testing.assert_allclose(seconds(arrival), [0.02, 0.04, 0.06, 0.01])
    assert arrival.bits.tolist() == [192.0, 64.0]
    parts = Broadcast(TEN.blocks, reals_of=torch.tensor([1, 10, 4, 2]))
    arrival = send(broadcast=parts, mode=mode)
    np.testing.assert_allclose(seconds(arrival), [0.01, 0.11, 0.15, 0.01])
    assert arrival.bits.tolist() == [15 * 32.0, 2 * 32.0]


# ---- losses, with the draws at hand


def uniform(purpose: str, who: Cohort, attempts: int, round: int) -> np.ndarray:
    """[N, A], drawn for each row by itself."""
    streams = Streams([2, 2], [0, 1], dtype=DOUBLE)
    rows = zip(who.trial.tolist(), who.device.tolist(), strict=True)
    draws = [
        streams.device_uniform(purpose, round, torch.tensor([s]), torch.tensor([k]), (attempts,))
        for s, k in rows
    ]
    return torch.cat(draws).numpy()


def gains(who: Cohort, attempts: int, round: int) -> np.ndarray:
    return -np.log(uniform("downlink/gain", who, attempts, round))


class Twin:
    """Rows that are served attempt by attempt."""

    def __init__(self, who: Cohort, lost: np.ndarray, rate: np.ndarray, unicast: bool) -> None:
        trials, attempts = who.trial.numpy(), lost.shape[1]
        self.heard = np.zeros(who.size, dtype=bool)
        self.row_seconds = np.zeros(who.size)
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


@pytest.mark.parametrize("mode", ["broadcast", "unicast"])
@pytest.mark.parametrize("rate", ["given", "outage", "channel"])
@pytest.mark.parametrize("attempts", [1, 3])
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
        assert arrival.heard is not None
        np.testing.assert_array_equal(arrival.heard.numpy(), twin.heard)
        np.testing.assert_allclose(seconds(arrival), twin.row_seconds, rtol=1e-12)
        np.testing.assert_allclose(arrival.seconds, twin.seconds, rtol=1e-12)
        np.testing.assert_array_equal(arrival.bits, 320 * twin.copies)
        some += int(twin.heard.sum())
    assert 0 < some < 10 * 8


def test_a_known_channel_carries_its_rate() -> None:
    """Nothing is lost, whatever the attempts."""
    arrival = send(rate="channel", attempts=3)
    assert arrival.heard is None
    assert arrival.bits.tolist() == [320.0, 320.0]


# ---- laws: 300 rounds of six devices in each of two trials


def rounds(**config: Any) -> list[Arrival]:
    made = DigitalDownlink(DigitalDownlinkConfig(**config), setup(loss=[0.3, 0.6]))
    return [made.send(TEN, FULL, t) for t in range(300)]


def near(values: np.ndarray, law: float) -> None:
    """A z-test of the mean, false alarm 1e-3."""
    error = values.std(ddof=1) / np.sqrt(values.size)
    assert abs(values.mean() - law) < stats.norm.isf(FALSE_ALARM / 2) * error


@pytest.mark.parametrize("rate", ["given", "outage"])
@pytest.mark.parametrize("attempts", [1, 4])
def test_share_lost_and_transmissions(rate: str, attempts: int) -> None:
    """q = 1 - (1 - loss)(1 - outage): q^A are lost, and a unicast takes (1 - q^A) / (1 - q)
    transmissions, a broadcast to n sum_{a<A} (1 - (1 - q^a)^n). Binomial and z-tests, false alarm
    1e-3 each."""
    for mode in ("unicast", "broadcast"):
        arrivals = rounds(mode=mode, rate=rate, attempts=attempts)
        for s, loss in enumerate((0.3, 0.6)):
            q = loss if rate == "given" else 1 - (1 - loss) * 0.9
            heard = np.stack([a.heard.numpy()[s * K : (s + 1) * K] for a in arrivals])  # type: ignore[union-attr]
            lost = int((~heard).sum())
            assert stats.binomtest(lost, heard.size, q**attempts).pvalue > FALSE_ALARM
            sent = np.array([a.bits[s] for a in arrivals]) / 320
            if attempts == 1:
                assert set(sent) == ({1.0} if mode == "broadcast" else {float(K)})
            elif mode == "unicast":
                near(sent / K, (1 - q**attempts) / (1 - q))
            else:
                near(sent, sum(1 - (1 - q**a) ** K for a in range(attempts)))


def test_outage_rate() -> None:
    """B log2(1 + gamma (-ln(1 - epsilon))): at 20 dB and 0.1, 3.5281 bits a symbol."""
    arrival = send(rate="outage")
    np.testing.assert_allclose(arrival.seconds, 320 / np.array(BANDWIDTH_HZ) / 3.52808, rtol=1e-5)


# ---- an arrival cut to those who heard it


def test_taken() -> None:
    keep = torch.tensor([True, False, True, True])
    rows = FOUR.take(keep.nonzero().squeeze(1))
    own = Broadcast(
        {"a": torch.arange(8.0).view(4, 2)}, per_device=True, reals_of=torch.tensor([1, 2, 1, 2])
    )
    whole = send(broadcast=own)
    arrival = whole.taken(keep)
    assert arrival.heard is None
    assert arrival.rows(rows, 1, 3).blocks["a"].tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert arrival.sent.reals_of is not None
    assert arrival.sent.reals_of.tolist() == [1, 1, 2]
    assert seconds(arrival).tolist() == seconds(whole)[[0, 2, 3]].tolist()
    assert arrival.seconds is whole.seconds
    assert arrival.bits is whole.bits


@pytest.mark.parametrize("estimator", ["inversion", "mmse"])
def test_taken_noise(estimator: Any) -> None:
    """What a row hears does not depend on who is left out."""
    config = AnalogDownlinkConfig(fading=True, estimator=estimator)
    made = AnalogDownlink(config, setup(snr_db=[10.0, 0.0]))
    whole = made.send(TEN, FOUR, 3)
    keep = torch.tensor([False, True, True, True])
    rows = FOUR.take(keep.nonzero().squeeze(1))

    def heard(arrival: Arrival, who: Cohort) -> Tensor:
        return arrival.rows(who, 0, who.size).blocks["a"]

    assert torch.equal(heard(whole.taken(keep), rows), heard(whole, FOUR)[1:])


# ---- in the engine


def test_those_who_miss_the_broadcast_sit_the_round_out() -> None:
    """As many as heard it train and are aggregated; the round goes on, also where nobody did."""
    keys = {"downlink": {"name": "digital", "loss": 0.7}, "transport": "ideal"}
    one = engine(keys | {"devices.compute": {"name": "fixed", "flops_per_s": 1e100}})
    made = DigitalDownlink(DigitalDownlinkConfig(loss=0.7), one.parts.downlink._setup)  # type: ignore[attr-defined]
    everyone = one.select(None, 0)
    broadcast = one.parts.algorithm.broadcast(one.server, everyone)
    for t in range(6):
        heard = made.send(broadcast, everyone, t).heard
        assert heard is not None
        one.round(t)
        took_part = one.means.take()["participants"]
        assert took_part.tolist() == heard.view(3, 4).sum(1).tolist()
    assert one.server["model"].isfinite().all()


@pytest.mark.parametrize("algorithm", ["fedavg", "fedamp"])
def test_stacked_is_alone(algorithm: str) -> None:
    keys: dict[str, Any] = {
        "downlink": {"name": "digital", "loss": 0.4, "attempts": 2, "mode": "unicast"},
        "algorithm": algorithm,
        "transport": "ideal",
        "engine.dtype": "float64",
    }
    whole, alone = run(engine(keys), 4), run(engine(keys, trials=[1]), 4)
    assert whole.parts.clock.now()[1] == alone.parts.clock.now()[0]
    for name, block in alone.devices.blocks().items():
        torch.testing.assert_close(whole.devices.blocks()[name][1], block[0])
