"""Every part of the contract, used by a tiny method (probes.py) through whole rounds of several
trials, against numbers worked out one device at a time.

All in double precision; over the air without fading at 140 dB, where the mean is exact to 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from contract import probes
from contract.small import engine, run

from otafl.engine.engine import Engine

EXACT = {"engine.dtype": "float64", "transport": "ideal"}
ON_AIR = EXACT | {
    "transport": "over_the_air",
    "channel": {"name": "awgn", "snr_db": 140.0},
    "power": "ci",
}
DIGITAL = EXACT | {"transport": "digital"}
LINKS = pytest.mark.parametrize(
    ("link", "within"), [(DIGITAL, 1e-12), (ON_AIR, 1e-5)], ids=lambda v: ""
)


def probed(link: dict[str, Any], probe: Callable[..., Any], **keys: Any) -> Engine:
    return engine(link | keys, probe=probe)


def mean(one: Engine, trial: int, devices: Iterable[int], of: Callable[[int], float]) -> float:
    """Of the devices that send, by their numbers of samples."""
    share = one.sample_share[trial]
    devices = list(devices)
    total = sum(float(share[k]) for k in devices)
    return sum(float(share[k]) * of(k) for k in devices) / total


@LINKS
def test_trials_with_other_participants(link: dict, within: float) -> None:
    """Two of four devices, chosen anew in each round and trial; the second trial stops early."""
    one = run(probed(link, probes.Probe, **{"devices.participants": 2}), 1)
    before = one.server["x"][1].clone()
    one.stop(1)
    for t in (1, 2):
        one.run_round(t)
    assert torch.equal(one.server["x"][1], before)
    hand = np.zeros(3)
    sets = set()
    for heard in one.parts.algorithm.heard:
        counts = (2, 2, 2) if heard.round == 0 else (2, 0, 2)
        assert heard.cohort.counts == counts
        for trial in np.nonzero(counts)[0].tolist():
            devices = heard.cohort.device[heard.cohort.trial == trial].tolist()
            sets.add(tuple(devices))
            assert len(set(devices)) == 2
            hand[trial] += mean(
                one, trial, devices, lambda k, s=trial, t=heard.round: probes.value(s, k, t)
            )
    assert len(sets) > 1
    np.testing.assert_allclose(one.server["x"][:, 0].numpy(), hand, rtol=within)
