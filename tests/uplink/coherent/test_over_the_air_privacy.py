"""What a sum over the air counts of what its servers receive."""

from __future__ import annotations

import numpy as np
import pytest
from support.private_rig import P, mu, rig, rows

from otafl.privacy import accounting

pytestmark = pytest.mark.exact


def test_the_bound_counts_the_strongest_fade_of_a_slot() -> None:
    """A device that sends all symbols in the strongest of three blocks spends its whole share."""
    one = rig(privacy={"epsilon": 0.5}, channel={"block_symbols": 4})
    one.send(rows(one), 0)
    gains = one.link.channel.get_state(0).extend_to(P).abs().square()  # [S, K, 1, 3, 1]
    assert (gains.amax((2, 3, 4)) > 1.1 * gains.mean((2, 3, 4))).any()
    np.testing.assert_allclose(mu(one) ** 2, accounting.compute_mu(0.5, 1e-5) ** 2 / 5, rtol=1e-9)


def test_carriers_that_are_off_turn_into_the_quadrature_that_counts() -> None:
    """An honest server has the cosine of the phase that is left; where symbols turn, all."""
    impaired = {"residual_phase_rad": 1.5}
    section = {"adversary": "honest"}
    still = rig("full", privacy=section, impairments=impaired)
    turns = rig("full", privacy=section, impairments=impaired | {"carrier_offset": 0.01})
    curious = rig("full", impairments=impaired)
    for one in (still, turns, curious):
        one.send(rows(one), 0)
    assert (mu(still) < 0.99 * mu(curious)).any()  # not by rounding alone
    np.testing.assert_allclose(mu(turns), mu(curious), rtol=1e-9)
