"""What a slot takes beside its payload, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from otafl.core.contracts import LinkBudget, LinkReport
from otafl.uplink.report import Signalling

pytestmark = pytest.mark.exact

S, K = 3, 4
DOUBLE = torch.float64


def table(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=DOUBLE)


BANDWIDTH_HZ, WATTS = torch.tensor([100.0, 1000.0, 100.0], dtype=DOUBLE), [0.5, 0.25, 1.0]
BUDGET = LinkBudget(
    budget=table([10.0, 20.0, 30.0, 40.0], [8.0] * 4, [1.0] * 4),
    gain=torch.ones(S, K, dtype=DOUBLE),
    unit_power_w=torch.tensor(WATTS, dtype=DOUBLE),
    bandwidth_hz=BANDWIDTH_HZ,
    is_physical=torch.ones(S, dtype=torch.bool),
)
REPORT = LinkReport(
    symbols=torch.tensor([50.0, 200.0, 0.0], dtype=DOUBLE),
    bits=torch.zeros(S, dtype=DOUBLE),
    side_symbols=torch.tensor([12.0, 6.0, 0.0], dtype=DOUBLE),
    airtime_s=torch.tensor([0.5, 0.2, 0.0], dtype=DOUBLE),
    participants=torch.tensor([3.0, 2.0, 0.0], dtype=DOUBLE),
    power=table([1.0, 2.0, 0.0, 5.0], [0.0, 8.0, 8.0, 0.0], [0.0] * 4),
    energy_j=table([1.0, 1.0, 0.0, 1.0], [0.0, 2.0, 2.0, 0.0], [0.0] * 4),
    on_air_s=table([0.5, 0.5, 0.0, 0.25], [0.0, 0.2, 0.2, 0.0], [0.0] * 4),
    nmse=torch.zeros(S, dtype=DOUBLE),
)
"""Three of the first trial's devices are on air, two of the second's, and the third has no slot."""


def signalling(charge: bool = True) -> Signalling:
    numbers = zip((20.0, 5.0, 7.0), (3.0, 2.0, 1.0), strict=True)
    configs = [
        Signalling.Settings(charge=charge, sync_symbols=a, feedback_symbols=b) for a, b in numbers
    ]
    return Signalling(configs, BUDGET)


def test_off() -> None:
    assert signalling(charge=False).charge(REPORT) is REPORT
    assert not Signalling.Settings().charge


def test_on() -> None:
    """12 + 20 + 3 x 3 = 41 channel uses at 100 Hz, 6 + 5 + 2 x 2 = 15 at 1000 Hz; of the 12 each of
    three devices radiates 4, at 10, 20 and 40 times half a watt, of the 6 each of two 3."""
    report = signalling().charge(REPORT)
    assert report.side_symbols.tolist() == [41.0, 15.0, 0.0]
    np.testing.assert_allclose(report.airtime_s, [0.91, 0.215, 0.0])
    expected = [[1.2, 1.4, 0.0, 1.8], [0.0, 2.006, 2.006, 0.0], [0.0] * 4]
    np.testing.assert_allclose(report.energy_j, expected)
    on_air_s = [[0.54, 0.54, 0.0, 0.29], [0.0, 0.203, 0.203, 0.0], [0.0] * 4]
    np.testing.assert_allclose(report.on_air_s, on_air_s)
    assert report.power is REPORT.power
    assert report.symbols is REPORT.symbols
    assert report.participants is REPORT.participants


def test_a_slot_in_which_all_are_truncated_is_held() -> None:
    """It has its pilots and its synchronisation, which nobody is charged for."""
    none = dataclasses.replace(
        REPORT, power=torch.zeros(S, K, dtype=DOUBLE), energy_j=torch.zeros(S, K, dtype=DOUBLE)
    )
    report = signalling().charge(none)
    assert report.side_symbols.tolist() == [32.0, 11.0, 0.0]
    assert report.energy_j.eq(0).all()


# ---- in the engine
