"""Policies that invert the channel, by hand."""

from __future__ import annotations

import pytest
import torch
from support.power_links import (
    make_link,
    make_policy,
    solve,
)


@pytest.mark.exact
def test_multi_antenna_ci_is_ci_behind_the_combiner() -> None:
    """With one antenna, and with the scalar channel of any f; it asks for uniform forcing."""
    link = make_link(5)
    one, other = (solve(make_policy(name), link) for name in ("ci", "multi_antenna_ci"))
    torch.testing.assert_close(one.p, other.p)
    torch.testing.assert_close(one.eta, other.eta)
    assert make_policy("multi_antenna_ci").receiver == "uniform_forcing"
    assert make_policy("multi_antenna_ci").is_inversion


@pytest.mark.exact
def test_tci_peak_refuses_averages() -> None:
    with pytest.raises(ValueError, match="constraint: peak bounds each device"):
        make_policy("tci", constraint="peak", reference="mean")
