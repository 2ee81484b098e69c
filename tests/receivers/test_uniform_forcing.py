"""Uniform forcing against random combiners, the eigenvector, and by hand.

Mutations of the tangent's bound are executed here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import optimize
from support.combiners import compute_weakest_power, draw_channels
from torch import Tensor

from otafl.receivers import uniform_forcing
from otafl.receivers.base import normalise_combiner
from otafl.receivers.eigen import Eigen
from otafl.receivers.uniform_forcing import UniformForcing

pytestmark = pytest.mark.exact


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


WRONG_BOUNDS: dict[str, Callable[[Tensor], Tensor]] = {
    "1": torch.ones_like,
    "|.|^2": lambda power: power,
    "(1 - |.|^2)/2": lambda power: (1.0 - power) / 2.0,
    "(1 + |.|^4)/2": lambda power: (1.0 + power.square()) / 2.0,
    "(1 + |.|)/2": lambda power: (1.0 + power.sqrt()) / 2.0,
    "1 + |.|^2/2": lambda power: 1.0 + power / 2.0,
    "1/2 + |.|^2": lambda power: 0.5 + power,
}
"""In the place of (1 + |.|^2)/2. A multiple of it would be none: combiners have unit norm."""

SAME_OPTIMUM = ("(1 + |.|)/2", "1 + |.|^2/2", "1/2 + |.|^2")
"""Those that are tight at the same devices, and come to the same optimum by other steps."""


def tangent_programme(a: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The unit f [A] of least norm at which the tangent of every |f^H a_k|^2 at the last f, scaled
    so that the weakest device is at 1, is at least 1: tangents by finite differences, the
    programme as non-negative least squares (Lawson and Hanson 1974, chapter 23)."""

    def powers(x: np.ndarray) -> np.ndarray:
        return np.abs(a.conj() @ (x[: len(last)] + 1j * x[len(last) :])) ** 2

    start = np.concatenate([last.real, last.imag])
    at = start / np.sqrt(powers(start).min())
    unit = np.eye(len(at))
    slope = np.stack([(powers(at + 1e-4 * e) - powers(at - 1e-4 * e)) / 2e-4 for e in unit], 1)
    value = powers(at)
    least = 1.0 - value + slope @ at  # slope f >= least
    target = np.append(np.zeros(len(at)), 1.0)
    weights, _ = optimize.nnls(np.vstack([slope.T, least]), target)
    rest = np.vstack([slope.T, least]) @ weights - target
    x = -rest[:-1] / rest[-1]
    assert (slope @ x >= least - 1e-6).all()
    f = x[: len(last)] + 1j * x[len(last) :]
    return f / np.linalg.norm(f)


def step_is_the_programme() -> bool:
    """Whether a step with a well climbed dual is the programme of the tangents: six devices, four
    antennas, from random combiners in eight states."""
    reach, last, by_hand = solve_programmes()
    there = torch.ones(8, 6, dtype=torch.bool)
    ours, _ = uniform_forcing._step(reach, last, torch.zeros(8, 6).double(), there)
    return bool((ours - by_hand).abs().max() < 1e-4)


@functools.cache
def solve_programmes() -> tuple[Tensor, Tensor, Tensor]:
    """Return channels [8, 6, 4], combiners [8, 4], and the next combiners by the programmes."""
    reach = draw_channels(8, 6, 4)[:, 0]
    last = normalise_combiner(draw_channels(8, 1, 4, seed=3)[:, 0, 0])
    found = [tangent_programme(a.numpy(), f.numpy()) for a, f in zip(reach, last, strict=True)]
    return reach, last, torch.from_numpy(np.stack(found))


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


@functools.cache
def search_optima() -> tuple[Tensor, Tensor, np.ndarray]:
    """Return channels [12, 1, 4, 2], budgets [12, 4], and the optima [12] by brute force."""
    h, budget = draw_channels(12, 4, 2), torch.linspace(0.5, 2.0, 4).double().expand(12, 4)
    a = (h[:, 0] * budget.sqrt()[..., None]).numpy()
    return h, budget, np.array([two_antenna_optimum(one) for one in a])


def is_optimal() -> bool:
    """Whether the weakest of four devices at two antennas gets what it can in all of 12 states."""
    h, budget, best = search_optima()
    sends = torch.ones(12, 4, dtype=torch.bool)
    ours = compute_weakest_power(h, UniformForcing().combine(h, sends, budget), budget).numpy()
    assert (ours <= best * (1 + 1e-6)).all()
    return bool((ours >= best * (1 - 1e-3)).all())


def test_a_step_is_the_programme_of_the_tangents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved by another method, with tangents by finite differences; no wrong bound has it."""
    monkeypatch.setattr(uniform_forcing, "DUAL_STEPS", 3000)
    assert step_is_the_programme()
    for wrong in WRONG_BOUNDS.values():
        monkeypatch.setattr(uniform_forcing, "compute_tangent_bound", wrong)
        assert not step_is_the_programme()


@pytest.mark.parametrize("wrong", [None, *(one for one in WRONG_BOUNDS if one not in SAME_OPTIMUM)])
def test_two_antennas_against_brute_force(
    wrong: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a thousandth of the optimum; with a wrong bound, short of it."""
    if wrong is not None:
        monkeypatch.setattr(uniform_forcing, "compute_tangent_bound", WRONG_BOUNDS[wrong])
    assert is_optimal() == (wrong is None)
