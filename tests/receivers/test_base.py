"""Combiners against random ones, the eigenvector, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize

from otafl.core import registry
from otafl.core.contracts import apply_combiner
from otafl.power.least_error import Full
from otafl.receivers.base import Auto, Eigen, Mrc, Scalar, UniformForcing

pytestmark = pytest.mark.exact


def draw_channels(
    trials: int = 40, devices: int = 8, antennas: int = 4, seed: int = 0
) -> torch.Tensor:
    """[S, 1, K, A] complex normal."""
    z = np.random.default_rng(seed).standard_normal((2, trials, 1, devices, antennas))
    return torch.from_numpy((z[0] + 1j * z[1]) / math.sqrt(2))


def compute_weakest_power(h: torch.Tensor, f: torch.Tensor, budget: torch.Tensor) -> torch.Tensor:
    """min_k P_k |f^H h_k|^2 [S]."""
    arrives = (f.conj()[:, :, None] * h).sum(-1).abs().square()[:, 0] * budget
    return arrives.amin(1)


ANTENNAS = 4
MADE = {
    name: registry.load_settings_class("receiver", name)().match_policy(Full(), ANTENNAS)
    for name in registry.list_names("receiver")
}


@pytest.mark.parametrize("receiver", MADE.values(), ids=MADE)
def test_combiners_have_unit_norm_and_ignore_the_silent(receiver: Any) -> None:
    h, budget = draw_channels(antennas=ANTENNAS), torch.ones(40, 8, dtype=torch.float64)
    sends = torch.ones(40, 8, dtype=torch.bool)
    sends[:, 2] = False
    sends[7] = False  # nobody
    f = receiver.combine(h, sends, budget)
    torch.testing.assert_close(f.norm(dim=-1), torch.ones(40, 1, dtype=torch.float64))
    other = h.clone()
    other[:, :, 2] *= 100
    torch.testing.assert_close(receiver.combine(other, sends, budget)[:7], f[:7])
    one = receiver.combine(h[..., :1], sends, budget)
    torch.testing.assert_close(one.abs(), torch.ones_like(one.real))


def test_it_hears_the_first_antenna_alone() -> None:
    h = draw_channels()
    f = Scalar().combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    assert torch.equal(apply_combiner(f, h), h[..., 0])


def test_mrc_sums_the_channels() -> None:
    h = draw_channels()
    f = Mrc().combine(h, torch.ones(40, 8).bool(), torch.ones(40, 8))
    total = h.sum(2)
    torch.testing.assert_close(f, total / total.norm(dim=-1, keepdim=True))


def test_eigen_receives_the_most_power() -> None:
    h = draw_channels(antennas=12)
    budget = torch.linspace(0.5, 2.0, 8, dtype=torch.float64).expand(40, 8)
    f = Eigen().combine(h, torch.ones(40, 8).bool(), budget)
    best = ((f.conj()[:, :, None] * h).sum(-1).abs().square()[:, 0] * budget).sum(1)
    a = h[:, 0] * budget.sqrt()[..., None]
    law = torch.linalg.matrix_norm(a, ord=2).square()
    torch.testing.assert_close(best, law)
    first = f[..., 0]
    assert (first.real >= 0.0).all()
    torch.testing.assert_close(first.imag, torch.zeros_like(first.imag), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(f.norm(dim=-1), torch.ones(40, 1, dtype=torch.float64))


@pytest.mark.parametrize(
    ("power", "scale"), [("blind", "policy"), ("multi_antenna_ci", "mmse"), ("tci", "mmse")]
)
def test_it_is_the_receiver_that_the_policy_is_made_for(power: str, scale: str) -> None:
    policy = registry.make_component("power", registry.load_settings_class("power", power)())
    many, one = (Auto(scale=scale).match_policy(policy, count) for count in (2, 1))
    assert many.name == policy.receiver
    assert one.name == ("mrc" if power == "blind" else "scalar")
    assert many.scale == one.scale == scale


def test_uniform_forcing_beats_random_combiners_and_the_eigenvector() -> None:
    """The best of 1,000 random combiners in every one of 40 states, 8 devices, 4 antennas, unequal
    budgets."""
    h, budget = draw_channels(), torch.linspace(0.5, 2.0, 8, dtype=torch.float64).expand(40, 8)
    sends = torch.ones(40, 8, dtype=torch.bool)
    ours = compute_weakest_power(h, UniformForcing().combine(h, sends, budget), budget)
    z = draw_channels(1000, 1, 4, seed=1)[:, 0, 0]
    random = (z / z.norm(dim=-1, keepdim=True)).conj() @ h[:, 0].mT  # [S, 1000, K]
    best = (random.abs().square() * budget[:, None]).amin(-1).amax(1)
    assert (ours > best).all()
    start = compute_weakest_power(h, Eigen().combine(h, sends, budget), budget)
    assert (ours >= start).all()
    assert ours.mean() > 2 * start.mean()


def test_uniform_forcing_of_two_devices_by_hand() -> None:
    """Orthogonal channels of equal norm: both get half of it."""
    h = torch.eye(2, dtype=torch.complex128)[None, None]
    f = UniformForcing().combine(h, torch.ones(1, 2).bool(), torch.ones(1, 2))
    assert compute_weakest_power(h, f, torch.ones(1, 2)).item() == pytest.approx(0.5, rel=1e-3)


def test_uniform_forcing_with_more_antennas_than_devices() -> None:
    """As with antennas that no device reaches beside theirs, in other coordinates."""
    few, budget = draw_channels(devices=4), torch.ones(40, 4, dtype=torch.float64)
    sends = torch.ones(40, 4, dtype=torch.bool)
    turn = torch.linalg.qr(draw_channels(1, 12, 12, seed=2)[0, 0]).Q
    many = torch.nn.functional.pad(few, (0, 8)) @ turn.mT
    law = compute_weakest_power(few, UniformForcing().combine(few, sends, budget), budget)
    ours = UniformForcing().combine(many, sends, budget)
    assert ours.shape == (40, 1, 12)
    torch.testing.assert_close(compute_weakest_power(many, ours, budget), law, rtol=1e-6, atol=0.0)


def test_uniform_forcing_leaves_out_who_has_no_channel() -> None:
    """As if it did not send: the weakest of the others decides."""
    h, budget = draw_channels(), torch.ones(40, 8, dtype=torch.float64)
    h[:, :, 3] *= 1e-9
    sends = torch.ones(40, 8, dtype=torch.bool)
    ours = UniformForcing().combine(h, sends, budget)
    sends[:, 3] = False
    assert torch.equal(ours, UniformForcing().combine(h, sends, budget))
    others = [k for k in range(8) if k != 3]
    sent = torch.ones(40, 7, dtype=torch.bool)
    start = Eigen().combine(h[:, :, others], sent, budget[:, others])
    ours, start = (
        compute_weakest_power(h[:, :, others], f, budget[:, others]) for f in (ours, start)
    )
    assert (ours >= 0.999 * start).all()


def two_antenna_optimum(a: np.ndarray) -> float:
    """The largest min_k |f^H a_k|^2 over f = (cos t, sin t exp(j u)), which is every one: the best
    of a grid, refined from its ten best points."""

    def least(t: np.ndarray, u: np.ndarray) -> np.ndarray:
        f = np.stack([np.cos(t) + 0j * u, np.sin(t) * np.exp(1j * u)], -1)
        powers: np.ndarray = np.abs(f.conj() @ a.T) ** 2
        return powers.min(-1)

    t, u = np.meshgrid(np.linspace(0, np.pi / 2, 60), np.linspace(-np.pi, np.pi, 120))
    value = least(t, u)
    tops = np.argsort(value, axis=None)[-10:]
    refined = [
        optimize.minimize(
            lambda x: -least(x[0], x[1]),
            (t.flat[top], u.flat[top]),
            method="Nelder-Mead",
            options={"xatol": 1e-7, "fatol": 1e-10},
        ).fun
        for top in tops
    ]
    return -float(min(refined))


def test_two_antennas_against_brute_force() -> None:
    """The weakest of four devices gets what it can, to a thousandth, in all of 12 states."""
    h, budget = draw_channels(12, 4, 2), torch.linspace(0.5, 2.0, 4).double().expand(12, 4)
    best = [two_antenna_optimum(a) for a in (h[:, 0] * budget.sqrt()[..., None]).numpy()]
    sends = torch.ones(12, 4, dtype=torch.bool)
    ours = compute_weakest_power(h, UniformForcing().combine(h, sends, budget), budget).numpy()
    assert (ours <= np.array(best) * (1 + 1e-6)).all()
    assert (ours >= np.array(best) * (1 - 1e-3)).all()
