"""Mistakes about the digital uplink: each makes the laws fail that are named, and no
other of theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.mutations import Patch, failing, made, replaced

FAMILY = "transport digital"

CELLS, SHORT = "antennas and sub-carriers", "short of capacity"
ENERGY, LDPC = "radiated energy", "LDPC at capacity"


def noise(factor: Callable[[Any], Any]) -> Patch:
    """Noise of another amplitude than the demapper is told."""

    def make(real: Any) -> Any:
        def linked(plan: Any, device: Any) -> Any:
            link = real(plan, device)
            return lambda bits, noise, variance: link(bits, factor(variance) * noise, variance)

        return linked

    return replaced("otafl.uplink.digital.coded_bits._sionna_link", make)


def part_of_the_power(real: Any) -> Any:
    """A part of the power for a part of the band, where all of it is radiated."""

    def charge(self: Any, turns: Any, arrived: Any, blocks: int) -> None:
        load = dataclasses.replace(turns.load, budget=turns.load.budget / turns.load.parts)
        real(self, dataclasses.replace(turns, load=load), arrived, blocks)

    return charge


def gap_of_the_amplitude(capacity: Any) -> None:
    capacity._gap = capacity._gap.sqrt()


def no_margin(capacity: Any) -> None:
    capacity._margin = torch.ones_like(capacity._margin)


MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "noise of twice the power": ({LDPC}, noise(lambda variance: 2.0**0.5)),
    "variance for deviation": ({LDPC}, noise(lambda variance: (variance / 2.0).sqrt())),
    "a part of the power": (
        {ENERGY},
        replaced("otafl.uplink.digital.digital:Digital._charge", part_of_the_power),
    ),
    "gap by 20 log10": (
        {SHORT},
        made("otafl.uplink.digital.capacity:Capacity", gap_of_the_amplitude),
    ),
    "margin left out": ({SHORT}, made("otafl.uplink.digital.capacity:Capacity", no_margin)),
    "mean SNR of the cells": (
        {CELLS},
        replaced(
            "otafl.uplink.digital.capacity.bits_a_use",
            lambda real: lambda snr: torch.log2(1.0 + snr.mean(-1)),
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
