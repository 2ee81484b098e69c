"""Mistakes about the uplinks without phase: each makes the laws fail that are named."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from support.mutations import Patch, failing, replaced, turned

FSK, REED = "transport fsk_majority_vote", "transport reed"


def doubled(real: Any) -> Any:
    """Amplitudes that ought to be half."""

    def transmit(*args: Any) -> Any:
        made = real(*args)
        return dataclasses.replace(made, p=2.0 * made.p)

    return transmit


MUTATIONS: dict[str, tuple[str, set[str], Patch]] = {
    "one antenna's noise for all": (
        FSK,
        {"wrong votes"},
        replaced("otafl.uplink.noncoherent.energies.NOISE_ENERGY", lambda real: 40.0),
    ),
    "votes for the wrong use": (
        FSK,
        {"wrong votes", "gains weigh votes"},
        turned("otafl.uplink.noncoherent.energies._energy", lambda energy: energy.flip(1)),
    ),
    "louder than the scale says": (
        REED,
        {"unbiased", "variance", "variance given the channels"}
        | {"gains weigh devices without calibration"},
        replaced("otafl.uplink.noncoherent.reed.transmit", doubled),
    ),
    "no random phases": (
        REED,
        {"variance given the channels"},
        turned("otafl.core.rng:Streams.device_words", torch.zeros_like),
    ),
    "half the noise": (
        REED,
        {"variance given the channels"},
        replaced("otafl.uplink.noncoherent.energies.NOISE_ENERGY", lambda real: 0.5 * real),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, laws, patch = MUTATIONS[mutation]
    failed = failing(family, patch, monkeypatch)
    assert {f"{family}: {law}" for law in laws} <= failed
