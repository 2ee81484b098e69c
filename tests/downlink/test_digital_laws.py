"""Losses and repetitions of the digital downlink by their laws.

Mutations that make a test here fail: a fade for all attempts, devices or rounds, an outage at its
complement, a loss without the outage or the other way, an attempt too many or too few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.lossy_broadcasts import (
    FULL,
    TEN,
    K,
    setup,
)

from otafl.downlink.base import Arrival
from otafl.downlink.digital import DigitalDownlink

pytestmark = pytest.mark.law


FALSE_ALARM = 1e-3


def rounds(**config: Any) -> list[Arrival]:
    made = DigitalDownlink(DigitalDownlink.Settings(**config), setup(loss=[0.3, 0.6]))
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
            heard = np.stack([_heard(a)[s * K : (s + 1) * K] for a in arrivals])
            lost = int((~heard).sum())
            assert stats.binomtest(lost, heard.size, q**attempts).pvalue > FALSE_ALARM
            sent = np.array([a.bits[s] for a in arrivals]) / 320
            if attempts == 1:
                assert set(sent) == ({1.0} if mode == "broadcast" else {float(K)})
            elif mode == "unicast":
                near(sent / K, (1 - q**attempts) / (1 - q))
            else:
                near(sent, sum(1 - (1 - q**a) ** K for a in range(attempts)))


def _heard(arrival: Arrival) -> np.ndarray:
    assert arrival.heard is not None
    return arrival.heard.numpy()
