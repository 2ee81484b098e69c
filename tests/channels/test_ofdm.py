"""States of frequency-selective channels. Seeds are fixed; the statistical test's false-alarm level
over all that it compares is 1e-4.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.made_channels import make_channel
from support.rounding import assert_agree

from otafl.validation.bench import Bench


@pytest.mark.exact
@pytest.mark.parametrize("name", ["tdl-c", "cdl-c"])
def test_bandwidth_and_delay_spread_are_each_trials_own(name: str) -> None:
    """A stack of two bandwidths and two delay spreads, against each alone; only their product
    matters, so the last two agree."""
    each = [
        {"bandwidth_hz": 2e7, "delay_spread_s": 1e-7},
        {"bandwidth_hz": 2e7, "delay_spread_s": 2e-7},
        {"bandwidth_hz": 4e7, "delay_spread_s": 1e-7},
    ]
    stack = make_channel(name, 3, [1, 1, 1], each=each).get_state(2).h
    for row, own in enumerate(each):
        assert_agree(make_channel(name, 3, [1], each=[own]).get_state(2).h[0], stack[row])
    assert not torch.allclose(stack[0], stack[1])
    torch.testing.assert_close(stack[1], stack[2])


@pytest.mark.parametrize(
    "section",
    [
        {"name": "tdl-d", "block_symbols": 30, "antennas": 2, "antenna_correlation": 0.5},
        {"name": "cdl-e", "block_symbols": 30, "antennas": 2},
        {"name": "trace", "scene": "munich", "block_symbols": 30, "antennas": 2},
    ],
    ids=lambda section: str(section["name"]),
)
def test_h_follows_from_the_paths(section: dict[str, Any]) -> None:
    """sum_l a_l exp(-j 2 pi f tau_l) at the groups' centres, in every block of a later round."""
    groups, bandwidth = 6, 2e7
    section = section | {"subcarrier_groups": groups, "bandwidth_hz": bandwidth}
    state = Bench().build_rig(4, 2, {"channel": section}).link.channel.get_state(3)
    blocks = 3 if section.get("block_symbols") else 1
    assert state.paths_fn is not None
    paths = state.paths_fn(blocks)
    step = torch.arange(groups, dtype=torch.float64) - (groups - 1) / 2
    frequency = step * bandwidth / groups
    turns = torch.exp(-2j * torch.pi * frequency * paths.delay_s[..., None])[:, :, None]
    h = (paths.a[..., None] * turns).sum(-2)
    torch.testing.assert_close(h, state.extend_to(30 * blocks), rtol=1e-6, atol=1e-6)
