"""What is known of a channel in the long run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from otafl import channels, csi
from otafl.channels.base import Channel
from otafl.core import registry
from otafl.core.contracts import ChannelStatistics
from otafl.core.rng import Streams
from otafl.csi import long_term
from otafl.csi.base import Csi
from otafl.csi.long_term import compute_statistics
from otafl.receivers.base import Scalar

STREAMS = Streams([0, 0], [0, 1], dtype=torch.float64)
THRESHOLD = torch.tensor([0.05, 0.3], dtype=torch.float64)
NUMBERS = ("amplitude", "power", "inverse", "share", "over")


def build(
    name: str, csi_of: dict[str, Any], closed: bool = True, **keys: Any
) -> tuple[Channel, Csi, ChannelStatistics]:
    """Of two trials of four devices; closed: whether the channel may use its closed forms."""
    kind = registry.load_settings_class("channel", name)
    sections = [kind(name=name, **keys)] * 2
    budget, channel = channels.build(sections, 4, STREAMS)
    if not closed:
        channel.has_closed_form = False
    believed = registry.load_settings_class("csi", csi_of["name"])(**csi_of)
    noise = torch.full((2,), 0.5, dtype=torch.float64)
    made = csi.build([believed] * 2, channel, budget, STREAMS)
    return channel, made, compute_statistics(channel, made, Scalar(), budget, noise)


def known(name: str, closed: bool = True, **keys: Any) -> ChannelStatistics:
    return build(name, {"name": "perfect"}, closed, **keys)[-1]


def numbers(known: ChannelStatistics) -> dict[str, Tensor]:
    by_threshold = known.mean_inverse(THRESHOLD), known.prob_unit_gain_above(THRESHOLD)
    over = known.prob_gain_above(THRESHOLD[:, None].expand(-1, 4))
    values = known.mean_amplitude(), known.mean_power(), *by_threshold, over
    return dict(zip(NUMBERS, values, strict=True))


@pytest.mark.exact
def test_without_fading() -> None:
    """Of gain 0.1, below the second trial's threshold."""
    found = numbers(known("awgn", path_loss_db=10.0))
    ones = torch.ones(2, 4, dtype=torch.float64)
    torch.testing.assert_close(found["amplitude"], 0.1**0.5 * ones)
    torch.testing.assert_close(found["power"], 0.1 * ones)
    torch.testing.assert_close(found["inverse"], torch.tensor([[10.0], [0.0]]).double() * ones)
    torch.testing.assert_close(found["share"], ones)  # of the unit channel
    torch.testing.assert_close(found["over"], torch.tensor([[1.0], [0.0]]).double() * ones)


@pytest.mark.exact
def test_averages_are_those_of_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the least number of states, with noisy estimates; the other trial has another threshold.

    The unit channel is averaged over its sub-carrier groups too."""
    monkeypatch.setattr(long_term, "DRAWS", 0)
    noisy = {"name": "error", "variance": 0.2}
    channel, made, statistics = build("tdl-a", noisy, closed=False, subcarrier_groups=2)
    found = numbers(statistics)
    rounds = [long_term.FAR + i * channel.correlation_rounds for i in range(long_term.LEAST)]
    states = [channel.get_state(round) for round in rounds]
    seen = [made.estimate(one.h, one.gain, t) for t, one in zip(rounds, states, strict=True)]
    h = torch.stack([one.h[:, :, 0, 0] for one in states])  # [n, S, K, F]
    h_hat = torch.stack(seen)[:, :, :, 0, 0]
    power, least = h_hat.abs().square(), THRESHOLD[:, None, None]
    expected = {
        "amplitude": (h * h_hat.conj() / h_hat.abs()).real,
        "power": h.abs().square(),
        "inverse": torch.where(power >= least, 1.0 / power, 0.0),
        "share": (power.mean(3, keepdim=True) >= least).double(),
        "over": (power >= least).double(),
    }
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each.mean((0, 3)), msg=name)
