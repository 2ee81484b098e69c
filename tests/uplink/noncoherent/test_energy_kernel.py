"""One compiled pass over a payload gives what tensor operations give, wherever it is used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.link_bench import make_bench, make_cohort, make_given
from torch import Tensor

from otafl.core.contracts import NO_LIMITS, Group, TransmitLimits
from otafl.uplink.base import deliver
from otafl.uplink.noncoherent import energies

pytestmark = pytest.mark.exact
COUNTS = (5, 2, 1, 4)
"""Devices of each trial that take part."""

CASES: dict[str, dict[str, Any]] = {
    "reals": {"transport": "reed"},
    "votes": {"transport": "fsk_majority_vote"},
    "absentees": {"transport": "fsk_majority_vote", "absentee": 0.5},
    "antennas": {"transport": "reed", "antennas": 3},
    "blocks": {"transport": "reed", "block": 37},
    "long blocks of votes": {"transport": "fsk_majority_vote", "block": 4099},
    "crashes": {"transport": "fsk_majority_vote", "absentee": 0.5, "crash": 0.4},
    "crashes of reals": {"transport": "reed", "crash": 0.4},
}


def delivered(
    x: Tensor, antennas: int = 1, block: int = 1000, crash: float = 1.0, **options: Any
) -> tuple[Tensor, ...]:
    """What arrives of a payload, and how far that is from what was sent."""
    trials, devices = len(COUNTS), max(COUNTS)
    link = make_bench("full", trials=range(trials), devices=devices, **options)
    link = make_given(link, antennas, -(-2 * x.shape[1] // block), block_symbols=block)
    sent = torch.ones(trials, devices, dtype=torch.float64)
    sent[:, 1::2] = crash
    limits = NO_LIMITS if crash == 1.0 else TransmitLimits(sent_fraction=sent)
    weight = [1.0 + row for row in range(sum(COUNTS))]
    who, state = make_cohort(COUNTS, devices, weight=weight), link.channel.get_state(0)
    received, report = deliver(link.transport, (Group({"x": x}),), who, state, 3, limits)
    return received.mean[0]["x"], report.nmse


@pytest.mark.parametrize("case", CASES)
def test_as_tensor_operations(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(sum(COUNTS), 5001, generator=torch.Generator().manual_seed(0)).double()
    x[:, ::7], x[:, 1::7] = 0.0, -0.0
    monkeypatch.setattr(energies, "NUMBERS", energies.BLOCK)  # in three parts
    compiled = delivered(x, **CASES[case])
    monkeypatch.setattr(energies, "choose_kernel", lambda sent, antennas: None)
    for one, other in zip(compiled, delivered(x, **CASES[case]), strict=True):
        torch.testing.assert_close(one, other)
