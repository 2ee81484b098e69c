"""Channel inversion by hand. Its law under fading is in `otafl.validation.single_policies`."""

from __future__ import annotations

import pytest
import torch
from support.power_links import N, make_link, make_policy, solve

from otafl.core.contracts import Link

pytestmark = pytest.mark.exact


def make_three(transmit: list[bool]) -> Link:
    """h = 2, 1j, 0.1, P = 2, 3, 5 and m = 1, 4, 1, so P |h|^2 / m = 8, 0.75 and 0.05."""
    row = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.float64)
    return Link(
        h=torch.tensor([[[2.0, 1j, 0.1]]], dtype=torch.complex128),
        gain=torch.ones_like(row),
        budget=row,
        symbol_power=torch.tensor([[[1.0, 4.0, 1.0]]], dtype=torch.float64),
        noise_variance=N * torch.ones(1, dtype=torch.float64),
        transmit_mask=torch.tensor([transmit]),
        is_linear=True,
        hyper={},
    )


@pytest.mark.parametrize(
    ("transmit", "eta"), [([True, True, True], 0.05), ([True, True, False], 0.75)]
)
def test_the_weakest_transmitter_sets_the_level(transmit: list[bool], eta: float) -> None:
    link = make_three(transmit)
    got = solve(make_policy("ci"), link)
    assert got.eta.item() == pytest.approx(eta, rel=1e-12)
    gains = (link.h * got.p / got.eta.sqrt()[..., None])[0, 0]
    expected = torch.tensor([1.0 if one else 0.0 for one in transmit], dtype=torch.complex128)
    torch.testing.assert_close(gains, expected, rtol=0, atol=1e-12)
    spent = got.p.abs().square() * link.symbol_power
    assert (spent[0] <= link.budget * (1 + 1e-12)).all()


def test_multi_antenna_ci_is_ci_behind_the_combiner() -> None:
    """With one antenna, and with the scalar channel of any f; it asks for uniform forcing."""
    link = make_link(5)
    one, other = (solve(make_policy(name), link) for name in ("ci", "multi_antenna_ci"))
    torch.testing.assert_close(one.p, other.p)
    torch.testing.assert_close(one.eta, other.eta)
    assert make_policy("multi_antenna_ci").receiver == "uniform_forcing"
    assert make_policy("multi_antenna_ci").is_inversion
