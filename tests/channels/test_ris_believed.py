"""A reflecting surface that is set by what is believed of the paths, in place of the truth."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.made_channels import make_channel

from otafl import csi
from otafl.channels.base import Channel
from otafl.channels.ris import RisSettings
from otafl.core import registry
from otafl.csi.base import Csi


def surface(
    name: str, trials: int = 2, devices: int = 1, *, seen: dict[str, Any] | None = None, **keys: Any
) -> tuple[Channel, Csi]:
    """Rayleigh fading with a surface, set by this channel state information (`seen`: its keys)."""
    channel = make_channel("rayleigh", devices, range(trials), **keys)
    section = registry.load_settings_class("csi", name)(name=name, **(seen or {}))
    return channel, csi.build([section] * trials, channel, channel.budget, channel.streams)


def ris(elements: int = 6, **keys: Any) -> RisSettings:
    return RisSettings(elements=elements, **keys)


@pytest.mark.exact
@pytest.mark.parametrize(("name", "rule"), [("pilots", "align_weakest"), ("perfect", "align_sum")])
def test_a_block_is_the_same_however_many_there_are(name: str, rule: str) -> None:
    """And whatever it is stacked with; perfect knowledge is the truth, an estimate is not."""
    keys: dict[str, Any] = {"antennas": 2, "ris": ris(rule=rule), "block_symbols": 4}
    channel, _ = surface(name, 3, 4, **keys)
    state = channel.get_state(2)
    whole = state.extend_to(28)  # seven blocks
    for symbols in (4, 12, 16):
        torch.testing.assert_close(state.extend_to(symbols), whole[:, :, :, : symbols // 4])
    torch.testing.assert_close(state.h, whole[:, :, :, :1])
    alone, _ = surface(name, 1, 4, **keys)
    torch.testing.assert_close(alone.get_state(2).extend_to(28)[0], whole[0])
    truth = make_channel("rayleigh", 4, range(3), **keys).get_state(2).extend_to(28)
    for b in range(7):
        same = torch.allclose(truth[:, :, :, b], whole[:, :, :, b], atol=1e-6)
        assert same == (name == "perfect")


@pytest.mark.exact
def test_pilots_of_the_paths_are_counted() -> None:
    """L for the channel, and L for the direct path and each of six elements."""
    for rule, paths in (("align_sum", 7), ("random", 0)):
        _, known = surface("pilots", seen={"length": 3}, ris=ris(rule=rule))
        assert known.num_pilot_symbols == 3 * (1 + paths)
