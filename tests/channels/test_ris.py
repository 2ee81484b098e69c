"""Reflecting surfaces, set by the truth and by estimates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support.made_channels import make_channel
from torch import Tensor

from otafl import csi
from otafl.channels.base import Channel
from otafl.channels.ris import RisSettings, align_phases, align_to_sum, align_to_weakest
from otafl.core import registry
from otafl.csi.base import Csi


def random_paths(devices: int, antennas: int, elements: int) -> tuple[Tensor, Tensor, Tensor]:
    """Direct [2, K, A, 3], surface to server [2, A, M], device to surface [2, K, M, 3]."""
    generator = torch.Generator().manual_seed(devices + antennas)
    sizes = (2, devices, antennas, 3), (2, antennas, elements), (2, devices, elements, 3)
    draws = [torch.randn(size, dtype=torch.complex128, generator=generator) for size in sizes]
    return draws[0], draws[1], draws[2]


@pytest.mark.exact
def test_aligned_elements_of_several_antennas() -> None:
    """No phase alone can be bettered by more than 1e-3 of |y|, on a grid of 64 phases, and no
    random phases come near."""
    direct, to_server, to_surface = random_paths(1, 4, 6)
    d, r = direct[:, 0], to_surface[:, 0]

    def norm(phasors: Tensor) -> Tensor:
        reflected = torch.einsum("sam,...smb->...sab", to_server, phasors * r)
        return (0.6 * d + reflected).abs().square().sum(-2).sqrt()

    phasors = align_phases(d, to_server, r, 0.6)
    best = norm(phasors)
    grid = torch.polar(torch.ones(64), torch.arange(64) * (2 * math.pi / 64)).to(torch.complex128)
    for n in range(6):
        turned_ = phasors.expand(64, -1, -1, -1).clone()
        turned_[:, :, n] *= grid[:, None, None]
        assert (norm(turned_) <= best * 1.001).all()
    angles = torch.rand(2000, *phasors.shape, generator=torch.Generator().manual_seed(0)) * 7
    others = norm(torch.polar(torch.ones_like(angles), angles).to(torch.complex128))
    assert (others <= best).all()


@pytest.mark.exact
def test_weakest_device_and_sum() -> None:
    """By hand, with the large-scale gain."""
    direct, _, to_surface = random_paths(3, 2, 4)
    gain = torch.tensor([[1.0, 0.01, 4.0], [0.25, 9.0, 1.0]], dtype=torch.float64)
    d, r = align_to_weakest(direct, to_surface, gain)
    power = (direct.abs() ** 2).sum(2) * gain[..., None]
    for s in range(2):
        for b in range(3):
            k = power[s, :, b].argmin()
            assert torch.equal(d[s, :, b], direct[s, k, :, b])
            assert torch.equal(r[s, :, b], to_surface[s, k, :, b])
    assert (power.argmin(1) != (direct.abs() ** 2).sum(2).argmin(1)).any()
    d, r = align_to_sum(direct, to_surface, gain)
    root = gain.sqrt()
    hand = sum(root[:, k, None, None] * direct[:, k] for k in range(3))
    torch.testing.assert_close(d, hand)
    hand = sum(root[:, k, None, None] * to_surface[:, k] for k in range(3))
    torch.testing.assert_close(r, hand)


@pytest.mark.exact
def test_surface_of_one_device() -> None:
    """The direct path is that of the channel without a surface; aligned, the reflected one is in
    phase with it, and `blocked` takes its share of the power."""
    kind, first = "rician", None
    plain = make_channel(kind, 1, (0, 1), antennas=1)
    for blocked in (0.0, 0.75, 1.0):
        keys: dict[str, Any] = {
            "ris": RisSettings(elements=16, blocked=blocked, rule="align_weakest")
        }
        h, d = make_channel(kind, 1, (0, 1), **keys).get_state(3).h, plain.get_state(3).h
        reflected = h - math.sqrt(1 - blocked) * d
        assert reflected.abs().min() > 0.5  # about 16 pi / 4 / 10
        first = reflected if first is None else first
        torch.testing.assert_close(reflected, first)
        torch.testing.assert_close(torch.sgn(reflected), torch.sgn(d))


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
def test_pilots_of_the_paths_are_counted() -> None:
    """L for the channel, and L for the direct path and each of six elements."""
    for rule, paths in (("align_sum", 7), ("random", 0)):
        _, known = surface("pilots", seen={"length": 3}, ris=ris(rule=rule))
        assert known.num_pilot_symbols == 3 * (1 + paths)
