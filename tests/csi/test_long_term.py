"""What is known of a channel in the long run. Seeds are fixed; a statistical test's false-alarm
level is 1e-4 for each number.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from otafl import channels, csi
from otafl.core import registry
from otafl.core.contracts import ChannelStatistics
from otafl.core.rng import Streams
from otafl.csi import long_term
from otafl.csi.long_term import compute_statistics, repeat_states
from otafl.receivers.scalar import Scalar
from otafl.running.memory import MemoryCounter

STREAMS = Streams([0, 0], [0, 1], dtype=torch.float64)
THRESHOLD = torch.tensor([0.05, 0.3], dtype=torch.float64)
PERFECT: dict[str, Any] = {"name": "perfect"}
NOISY: dict[str, Any] = {"name": "error", "variance": 0.2}
NUMBERS = ("amplitude", "power", "inverse", "share", "over")


def known(name: str, csi_of: dict[str, Any], closed: bool = True, **keys: Any) -> ChannelStatistics:
    """Of two trials of four devices; closed: whether the channel may use its closed forms."""
    kind = registry.load_settings_class("channel", name)
    sections = [kind(name=name, **keys)] * 2
    budget, channel = channels.build(sections, 4, STREAMS)
    if not closed:
        channel.has_closed_form = False
    believed = registry.load_settings_class("csi", csi_of["name"])(**csi_of)
    noise = torch.full((2,), 0.5, dtype=torch.float64)
    made = csi.build([believed] * 2, channel, budget, STREAMS)
    return compute_statistics(channel, made, Scalar(), budget, noise)


def numbers(known: ChannelStatistics) -> dict[str, Tensor]:
    by_threshold = known.mean_inverse(THRESHOLD), known.prob_unit_gain_above(THRESHOLD)
    over = known.prob_gain_above(THRESHOLD[:, None].expand(-1, 4))
    values = known.mean_amplitude(), known.mean_power(), *by_threshold, over
    return dict(zip(NUMBERS, values, strict=True))


@pytest.mark.exact
def test_without_fading() -> None:
    """Of gain 0.1, below the second trial's threshold."""
    found = numbers(known("awgn", {"name": "perfect"}, path_loss_db=10.0))
    ones = torch.ones(2, 4, dtype=torch.float64)
    torch.testing.assert_close(found["amplitude"], 0.1**0.5 * ones)
    torch.testing.assert_close(found["power"], 0.1 * ones)
    torch.testing.assert_close(found["inverse"], torch.tensor([[10.0], [0.0]]).double() * ones)
    torch.testing.assert_close(found["share"], ones)  # of the unit channel
    torch.testing.assert_close(found["over"], torch.tensor([[1.0], [0.0]]).double() * ones)


@pytest.mark.law
@pytest.mark.parametrize(
    ("name", "keys", "csi_of"),
    [
        ("rayleigh", {}, PERFECT),
        ("rayleigh", {}, NOISY),
        ("rician", {}, PERFECT),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("rician", {}, NOISY),
                ("rayleigh", {"speed_kmh": 3.0}, PERFECT),
                ("rayleigh", {"speed_kmh": 3.0}, NOISY),
                ("tdl-a", {"subcarrier_groups": 1}, PERFECT),
                ("tdl-a", {"subcarrier_groups": 1}, NOISY),
            )
        ),
    ],
)
def test_closed_forms_are_what_averages_tend_to(
    name: str, keys: dict[str, Any], csi_of: dict[str, Any]
) -> None:
    """Over 4,096 draws a device: |h|, |h|^2, 1/|h|^2 above 0.05 and whether |h|^2 is above have
    standard deviations of at most 0.52, 1, 3.3 and 0.5, so 10 means are within 4.4 of their
    standard errors."""
    closed = numbers(known(name, csi_of, **keys))
    drawn = numbers(known(name, csi_of, closed=False, **keys))
    for number, deviation in zip(NUMBERS, (0.52, 1.0, 3.3, 0.5, 0.5), strict=True):
        off = (closed[number] - drawn[number]).abs().max()
        assert off < 4.4 * deviation / 64, number


@pytest.mark.exact
@pytest.mark.parametrize("name", ["cdl-a", "umi"])
def test_a_channel_without_closed_forms_is_averaged(name: str) -> None:
    found = known(name, {"name": "perfect"}, subcarrier_groups=2)
    draws = found.draw_samples(5)
    assert draws.shape == (5, 2, 4)
    assert torch.equal(draws, known(name, {"name": "perfect"}, subcarrier_groups=2).draw_samples(5))
    power = found.mean_power()
    assert power.shape == (2, 4)
    assert (power / found.gain - 1.0).abs().max() < 0.5


@pytest.mark.exact
def test_repeated_states_take_the_memory_of_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two batches of 64 states, of which the second is repeated."""
    monkeypatch.setattr(long_term, "AT_ONCE", 512)
    different = known("rayleigh", PERFECT, closed=False)
    with MemoryCounter() as counter:
        mean = different.mean_power()
    drawn = different.draw_samples(1000)
    with repeat_states():
        few = known("rayleigh", PERFECT, closed=False)
        with MemoryCounter() as fewer:
            roughly = few.mean_power()
        repeated = few.draw_samples(1000)
    assert fewer.peak == counter.peak
    torch.testing.assert_close(roughly, mean, rtol=0.5, atol=0.0)
    assert torch.equal(repeated[:128], drawn[:128])
    assert torch.equal(repeated[128:192], drawn[64:128])
    assert torch.equal(repeated[960:], drawn[64:104])
    assert repeated.shape == drawn.shape
    assert not torch.equal(few.draw_samples(900)[:192], repeated[:192])
