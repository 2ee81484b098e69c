"""Faults in rounds: the round goes on, what is counted is right, and the result says it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from support.numbered import Numbered

pytestmark = pytest.mark.exact


BASE: dict[str, Any] = {
    "data.partition": "iid",
    "engine.dtype": "float64",
    "power": "ci",
    "channel": {"name": "awgn", "snr_db": 120.0},
}
IDEAL: dict[str, Any] = {
    "transport": "ideal",
    "data.partition": "iid",
    "engine.dtype": "float64",
}
NAN: dict[str, Any] = IDEAL | {"faults": {"byzantine": 2, "attack": "nan"}}


def test_crashed_packets_are_lost_and_counted() -> None:
    """Of devices that send 1, 2, 3, 4, the mean of those that did not crash."""
    keys = BASE | {"transport": "digital", "faults": {"crash_probability": 0.5}}
    one, model = engine(keys, probe=Numbered), np.zeros(3)
    everyone, crashed = one.select_cohort(None, 0), np.zeros(3)
    for t in range(6):
        sent = one.parts.faults.draw_crashes(everyone, t)
        assert sent is not None
        whole = (sent == 1.0).numpy()
        count = whole.sum(1)
        model += (whole * np.arange(1.0, 5.0)).sum(1) / np.maximum(count, 1)
        crashed += 4 - count
        one.run_round(t)
        assert one.means.take()["participants"].tolist() == count.tolist()
        np.testing.assert_allclose(one.server["x"][:, 0].numpy(), model, rtol=1e-12)
        assert one.counts["crashed_updates"].tolist() == crashed.tolist()
    assert 0 < crashed.sum() < 72


def test_the_rest_of_a_crashed_update_is_missing_over_the_air() -> None:
    """Of 40 numbers each."""
    keys = BASE | {"faults": {"crash_probability": 0.5}}
    one = engine(keys, probe=lambda parts: Numbered(parts, width=40))
    sent = one.parts.faults.draw_crashes(one.select_cohort(None, 0), 0)
    assert sent is not None
    run(one, 1)
    stops = np.floor(sent.numpy() * 40)[..., None]
    expected = (np.arange(1.0, 5.0)[:, None] * (np.arange(40) < stops)).sum(1) / 4
    np.testing.assert_allclose(one.server["x"].numpy(), expected, atol=1e-4)
    assert one.counts["crashed_updates"].tolist() == (sent < 1).sum(1).tolist()
    assert one.means.take()["participants"].tolist() == [4.0] * 3


def test_all_twice_is_twice_the_sum() -> None:
    faults = {"byzantine": 4, "attack": "duplicate"}
    one = run(engine(BASE | {"faults": faults}, probe=Numbered), 2)
    np.testing.assert_allclose(one.server["x"].numpy(), 2 * 2 * 2.5, rtol=1e-4)
    assert one.counts["duplicated_updates"].tolist() == [8.0] * 3
    digital = run(engine(BASE | {"faults": faults, "transport": "digital"}, probe=Numbered), 2)
    np.testing.assert_allclose(digital.server["x"].numpy(), 2 * 2.5, rtol=1e-12)
    plain = run(engine(BASE | {"transport": "digital"}, probe=Numbered), 2)
    both, once = digital.means.take(), plain.means.take()
    torch.testing.assert_close(both["radio_j"], 2 * once["radio_j"])


@pytest.mark.parametrize("transport", ["over_the_air", "digital"])
def test_the_round_goes_on_without_the_refused(transport: str) -> None:
    """Of devices that send 1, 2, 3, 4 the last two are left."""
    keys = NAN | {"transport": transport, "channel": {"name": "awgn", "snr_db": 120.0}}
    one = run(engine(keys | {"power": "ci"}, probe=Numbered), 2)
    np.testing.assert_allclose(one.server["x"].numpy(), 2 * 3.5, rtol=1e-4)
    assert one.counts["rejected_updates"].tolist() == [4.0] * 3
    assert one.means.take()["participants"].tolist() == [2.0] * 3
