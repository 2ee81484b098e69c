"""Devices that are heard well enough, by hand and by their law."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contract.small import engine, equal, run
from support.selections import ALL, DOUBLE, FLAT, K, S, make_selection, make_state, to_sets

from otafl.core.rng import Streams


@pytest.mark.exact
def test_threshold() -> None:
    """SNR = budget times gain: 1, 2, .. 5 in the first trial and twice that in the second; 3 dB is
    1.995 and 7 dB 5.01."""
    made = make_selection("threshold", min_snr_db=[3.0, 7.0])
    assert to_sets(made.select_devices(ALL, K, 0, FLAT)) == [[1, 2, 3, 4], [2, 3, 4]]
    busy = ALL.copy()
    busy[0, 2] = False
    assert to_sets(made.select_devices(busy, K, 0, FLAT)) == [[1, 3, 4], [2, 3, 4]]
    assert to_sets(made.select_devices(ALL, K, 0, make_state(torch.full((S, K), 0.1)))) == [[], []]
    for round in range(20):
        draw = Streams([1, 1], [0, 1], dtype=DOUBLE).draw_uniform("selection", round, (K,)).numpy()
        chosen = to_sets(made.select_devices(ALL, 2, round, FLAT))
        for trial, heard in enumerate([[1, 2, 3, 4], [2, 3, 4]]):
            order = sorted(heard, key=lambda k: draw[trial, k])
            assert chosen[trial] == sorted(order[:2])


@pytest.mark.exact
def test_a_round_in_which_nobody_takes_part() -> None:
    """Nothing is learned or sent; time passes for the broadcast."""
    keys = {"devices.selection": {"name": "threshold", "min_snr_db": 200.0}}
    one = engine(keys)
    before = {name: block.clone() for name, block in one.server.items()}
    run(one, 3)
    equal(one.server, before)
    taken = one.means.take()
    for name in ("participants", "uplink_symbols", "side_symbols", "airtime_s", "radio_j"):
        assert not taken[name].any()
    assert not one.parts.clock.compute_spent_j().any()
    seconds = 3 * 32 * sum(block[0].numel() for block in before.values()) / 1e7
    np.testing.assert_allclose(one.parts.clock.get_time_s(), seconds, rtol=1e-12)
