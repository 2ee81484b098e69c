"""Holds training alone against its looped twin, and to sending nothing: two trials of different
rates, five devices of unequal shares, a round of all and two of some, so that absent devices and
the state between rounds count.
"""

from __future__ import annotations

import numpy as np
import pytest
from contract.small import engine, run
from support.rival_rounds import (
    MODEL,
    OWN,
    WHO,
    Round,
    Rounds,
    assert_close,
    compute_losses,
    draw_batches,
    list_members,
    read_device,
)
from twins import rivals as twin

from otafl.core import registry

pytestmark = pytest.mark.exact


@pytest.mark.twin
def test_local_only() -> None:
    ours = Rounds("local_only", MODEL, personal_learning_rate=OWN)
    assert ours.server == {}
    v = [[read_device(ours, s, k) for k in range(5)] for s in range(2)]
    for t, who in enumerate(WHO):
        one: Round = ours.run_round(t, who)
        assert one.payload == ()
        for s in range(2):
            for k, own, loss in zip(
                list_members(one, s), draw_batches(one, s), compute_losses(one, s), strict=True
            ):
                v[s][k], expected = twin.sgd(v[s][k], own, OWN[s])
                np.testing.assert_allclose(loss, expected, rtol=1e-12)
            for k in range(5):
                assert_close(read_device(ours, s, k), v[s][k])


def test_local_only_sends_nothing() -> None:
    """No transport takes a symbol, bit, second or joule of radio, and work is still paid for."""
    for transport in registry.list_names("transport"):
        one = run(engine({"algorithm": "local_only", "transport": transport}), 2)
        taken = one.means.take()
        for name in ("uplink_symbols", "uplink_bits", "airtime_s", "radio_j", "participants"):
            assert taken[name].eq(0).all(), name
        assert not one.downlink_bits.any()
        assert (one.parts.clock.compute_spent_j()[..., 0] > 0).all()
