"""The links that power policies are tried on, and what a test asks of a policy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from scipy import special

from otafl.core import registry
from otafl.core.contracts import ChannelStatistics, Coefficients, Link
from otafl.core.settings import list_stackable_fields
from otafl.power.base import PowerPolicy

N = 0.5
HYPER = {
    "threshold": 0.3,
    "h_min": 0.6,
    "variation": 0.7,
    "alpha": 0.8,
    "p0_db": 6.0,
    "energy_db": -3.0,
    "rounds": 20.0,
    "burst": 1.5,
    "v": 5.0,
    "average_db": -6.0,
}
ANTENNAS = 3
TRIALS, SEGMENTS, DEVICES = 3, 2, 6


def make_policy(name: str, **fields: Any) -> PowerPolicy:
    """A registered policy with these settings."""
    policy: PowerPolicy = registry.load_settings_class("power", name)(**fields)
    return policy


def make_link(seed: int = 0, linear: bool = True, spread: bool = True) -> Link:
    """Random channels, unequal large-scale gains of trials, m_k and budgets of trials and devices,
    some devices that do not send; float64. spread: False makes all m_k one."""
    rng = np.random.default_rng(seed)
    shape = (TRIALS, SEGMENTS, DEVICES)
    gain = rng.uniform(0.5, 2.0, (TRIALS, 1)).repeat(DEVICES, 1)
    z = rng.standard_normal((2, TRIALS, 1, DEVICES)) * math.sqrt(0.5)
    h = np.broadcast_to((z[0] + 1j * z[1]) * np.sqrt(gain)[:, None], shape)
    power = rng.uniform(0.2, 3.0, shape) if spread else np.ones(shape)
    sends = np.ones((TRIALS, DEVICES), dtype=bool)
    sends[1, 2] = sends[2, 0] = sends[2, 5] = False
    budget = np.array([[1.0], [10.0], [200.0]]) * rng.uniform(0.5, 2.0, (TRIALS, DEVICES))
    return Link(
        h=torch.from_numpy(h.copy()),
        gain=torch.from_numpy(gain),
        budget=torch.from_numpy(budget),
        symbol_power=torch.from_numpy(power),
        noise_variance=torch.full((TRIALS,), N, dtype=torch.float64),
        transmit_mask=torch.from_numpy(sends),
        is_linear=linear,
        hyper={k: torch.full((TRIALS,), v, dtype=torch.float64) for k, v in HYPER.items()},
        num_antennas=ANTENNAS,
    )


def perturb(link: Link, **fields: Any) -> Link:
    """The link with other fields."""
    return dataclasses.replace(link, **fields)


def draw_links(draws: int, devices: int, seed: int) -> Link:
    """[draws, 1, devices]: SNRs of -10 to 40 dB, budgets and symbol powers over a decade each,
    Rayleigh fading, and (but for the first device) one in eight that does not send."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((2, draws, 1, devices)) * math.sqrt(0.5)
    snr = 10 ** rng.uniform(-1, 4, (draws, 1))
    sends = rng.random((draws, devices)) > 1 / 8
    sends[:, 0] = True
    return Link(
        h=torch.from_numpy(z[0] + 1j * z[1]),
        gain=torch.ones(draws, devices, dtype=torch.float64),
        budget=torch.from_numpy(snr * 10 ** rng.uniform(-0.5, 0.5, (draws, devices))),
        symbol_power=torch.from_numpy(10 ** rng.uniform(-0.5, 0.5, (draws, 1, devices))),
        noise_variance=torch.full((draws,), N, dtype=torch.float64),
        transmit_mask=torch.from_numpy(sends),
        is_linear=True,
        hyper={},
    )


def make_rayleigh_statistics(link: Link) -> ChannelStatistics:
    """Of independent Rayleigh fading that is known."""

    def mean_inverse(threshold: torch.Tensor) -> torch.Tensor:
        ratio = (threshold[:, None] / link.gain).double().numpy()
        return (torch.from_numpy(special.exp1(ratio)) / link.gain).to(link.gain)

    def draws(count: int) -> torch.Tensor:
        z = np.random.default_rng(99).standard_normal((2, count, *link.gain.shape))
        h = torch.from_numpy(z[0] + 1j * z[1]) * (link.gain / 2).sqrt()
        return h.to(link.h.dtype)

    return ChannelStatistics(
        gain=link.gain,
        budget=link.budget,
        noise_variance=link.noise_variance,
        mean_amplitude=lambda: math.sqrt(math.pi) / 2 * link.gain.sqrt(),
        mean_power=lambda: link.gain,
        mean_inverse=mean_inverse,
        prob_unit_gain_above=lambda threshold: torch.exp(-threshold)[:, None].expand_as(link.gain),
        prob_gain_above=lambda threshold: torch.exp(-threshold / link.gain.clamp_min(1e-300)),
        draw_samples=draws,
    )


def make_plain_link(h: torch.Tensor, budget: float, **fields: object) -> Link:
    """h [S, K] complex, unit symbol powers and gains, everybody sends."""
    trials, devices = h.shape
    ones = torch.ones(trials, devices, dtype=torch.float64)
    link = Link(
        h=h[:, None],
        gain=ones,
        budget=budget * ones,
        symbol_power=ones[:, None],
        noise_variance=torch.full((trials,), N, dtype=torch.float64),
        transmit_mask=ones.bool(),
        is_linear=True,
        hyper={},
    )
    return perturb(link, **fields)


def draw_fading(*shape: int, seed: int = 0) -> torch.Tensor:
    """[*shape] complex normal of unit power."""
    z = np.random.default_rng(seed).standard_normal((2, *shape)) * math.sqrt(0.5)
    return torch.from_numpy(z[0] + 1j * z[1])


def fill_in(policy: PowerPolicy, link: Link) -> Link:
    """The link with those stackable fields of the policy that it does not give."""
    own = {name: getattr(policy, name) for name in list_stackable_fields(type(policy))}
    given = {n: torch.full_like(link.noise_variance, v) for n, v in own.items() if v is not None}
    return perturb(link, hyper=given | dict(link.hyper))


def solve(policy: PowerPolicy, link: Link) -> Coefficients:
    """The scalars of a first call."""
    link = fill_in(policy, link)
    state = policy.prepare(make_rayleigh_statistics(link), link.hyper)
    _, coefficients = policy.compute_coefficients(state, link)
    return coefficients


def compute_received_gain(link: Link, got: Coefficients) -> torch.Tensor:
    """c [S, Q, K]."""
    return (link.h * got.p).real / got.eta.sqrt()[..., None]
