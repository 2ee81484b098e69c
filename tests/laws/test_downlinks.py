"""Mistakes about downlinks: each makes the laws fail that are named, and no
other of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.mutations import Patch, failing, made, turned

FAMILY = "downlink digital"

OUTAGE, RATE, COPIES = "outage", "rate of the channel", "transmissions"


def outage_for_its_rest(link: Any) -> None:
    link._gain_needed = -np.log(1.0 - np.exp(-link._gain_needed))


def snr_by_20_log10(link: Any) -> None:
    link._snr = link._snr**0.5


def a_copy_more(sent: Any) -> Any:
    seconds, row_seconds, bits = sent
    return 2.0 * seconds, row_seconds, bits


def never_lost(sent: Any) -> Any:
    lost, rate = sent
    return 0 * lost > 1, rate


DIGITAL = "otafl.downlink.digital:DigitalDownlink"

MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "epsilon for 1 - epsilon": ({OUTAGE}, made(DIGITAL, outage_for_its_rest)),
    "SNR by 20 log10": ({OUTAGE, RATE}, made(DIGITAL, snr_by_20_log10)),
    "seconds of twice the copies": ({COPIES}, turned(f"{DIGITAL}._to_all", a_copy_more)),
    "nothing lost": ({OUTAGE, COPIES}, turned(f"{DIGITAL}._attempts", never_lost)),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
