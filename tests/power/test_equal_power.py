"""Equal power with and without compensation of the phase."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.power_links import (
    draw_fading,
    make_link,
    make_plain_link,
    make_policy,
    solve,
)

import otafl
from otafl.core.contracts import Link
from otafl.core.errors import UserError
from otafl.scenario import load_scenario

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("target", "linear"), [("amplitude", False), ("energy", True)])
def test_gbma_targets(target: str, linear: bool) -> None:
    """A target that is set overrules the payload's kind; amplitude and energy differ by pi / 4."""
    link = make_link(6, linear)
    got = solve(make_policy("gbma", gain_target=target), link)
    bound = torch.where(
        link.transmit_mask[:, None], link.budget[:, None] / link.symbol_power, math.inf
    )
    energy = bound.amin(-1)
    factor = math.pi / 4 if target == "amplitude" else 1.0
    torch.testing.assert_close(got.eta, energy * link.gain[:, :1] * factor)


def test_estimates_without_the_phase_are_refused() -> None:
    """Of the channel of the round before."""
    link = otafl.WirelessUplink(4, channel="rayleigh", csi="delay", snr_db=20.0)
    with pytest.raises(UserError, match=r"power: 'gbma' .* got 0\.0.*channel\.speed_kmh"):
        link(0, torch.ones(4, 5))


def blind_link(
    antennas: int, trials: int, devices: int, budget: float
) -> tuple[Link, torch.Tensor]:
    """The link behind maximum-ratio combining, and h [S, K, A]."""
    h = draw_fading(trials, devices, antennas, seed=antennas)
    total = h.sum(1)
    f = total / torch.linalg.vector_norm(total, dim=-1, keepdim=True)
    scalar = torch.einsum("sa,ska->sk", f.conj(), h)
    return make_plain_link(scalar, budget, num_antennas=antennas), h


@pytest.mark.parametrize("antennas", [1, 4])
def test_blind_is_the_papers_estimate(antennas: int) -> None:
    """Re(sum_a conj(sum_k h_ka) y_a) / (K A sqrt(P)), antenna by antenna, of one symbol."""
    budget, devices = 3.0, 5
    link, h = blind_link(antennas, 20, devices, budget)
    got = solve(make_policy("blind"), link)
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((20, devices)))
    z = draw_fading(20, antennas, seed=9)
    p = got.p[:, 0]
    torch.testing.assert_close(p, torch.full_like(p, math.sqrt(budget)))  # real, the same for all
    y = (h * (p * x)[..., None]).sum(1) + z
    total = h.sum(1)
    paper = (total.conj() * y).sum(-1).real / (devices * antennas * math.sqrt(budget))
    f = total / torch.linalg.vector_norm(total, dim=-1, keepdim=True)
    ours = (f.conj() * y).sum(-1).real / (devices * got.eta[:, 0].sqrt())
    torch.testing.assert_close(ours, paper)
    assert make_policy("blind").receiver == "mrc"


def test_it_needs_the_sum_of_channels() -> None:
    with pytest.raises(UserError, match=r"'eigen' does not go with power: 'blind'.* auto or mrc"):
        load_scenario({"name": "x", "power": "blind", "receiver": "eigen"})
