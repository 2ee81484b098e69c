"""Mistakes about pre-scalers: each makes the laws of theirs fail that are named, and no other."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from support.mutations import Patch, constant, failing, replaced

from otafl.power.pre_scaler import zero_bias

FAMILY = "power pre_scaler"

LEAST, ZERO, BEST, ERROR, GAIN, SILENT = (
    "least bias and variance",
    "zero bias",
    "best common gain",
    "error without bias",
    "mean gain",
    "silent fraction",
)
POWER = "power within its budget"


def noise_alone(real: Any) -> Any:
    """Every alpha as large as can be."""
    return lambda strength, *_: (strength / 2.0) ** 0.5


def of_the_mean_device(real: Any) -> Any:
    return lambda strength, *part: real(strength, *part) * (0.8 + 0.0 * strength)


def always(real: Any) -> Any:
    """A chance of one to be on air in the receive scaling."""
    return lambda *args: dataclasses.replace(real(*args), share_over=torch.ones_like)


def by_amplitude(real: Any) -> Any:
    """|h| where the threshold is on |h|^2: who sends is decided on another channel."""

    def coefficients(self: Any, state: Any, link: Any) -> Any:
        gamma = state[0]
        least = (gamma / link.budget.sqrt())[:, None]
        new, got = real(self, state, link)
        on = link.h.abs() >= least.square()
        scale = link.power.amax(-1, keepdim=True).rsqrt()
        p = torch.where(on, scale * gamma[:, None] / link.h, 0.0)
        return new, type(got)(p, got.eta, got.active, quiet=~on)

    return coefficients


def counted_on_air(real: Any) -> Any:
    """The mean over who is on air, with the scale of who sends."""

    def coefficients(self: Any, state: Any, link: Any) -> Any:
        new, got = real(self, state, link)
        return new, type(got)(got.p, got.eta * math.e, got.active, got.quiet)

    return coefficients


def noise_twice(real: Any) -> Any:
    """A common gain for the noise of a complex symbol."""
    return lambda strength, noise, few: real(strength, 2.0 * noise, few)


POLICY = "otafl.power.pre_scaler:PreScaler.coefficients"
MUTATIONS: dict[str, tuple[set[str], Patch]] = {
    "every gamma at its most": (
        {LEAST},
        replaced("otafl.power.pre_scaler.least_cost", noise_alone),
    ),
    "zero bias at another level": (
        {ZERO, BEST, ERROR},
        replaced("otafl.power.pre_scaler.zero_bias", of_the_mean_device),
    ),
    "the largest gain for the best": (
        {BEST},
        constant("otafl.power.pre_scaler.best_zero_bias", lambda strength, *_: zero_bias(strength)),
    ),
    "the noise of a complex symbol": (
        {BEST},
        replaced("otafl.power.pre_scaler.best_zero_bias", noise_twice),
    ),
    "silence left out of the receive scaling": (
        {ZERO, BEST, ERROR, GAIN},
        replaced("otafl.uplink.statistics", always),
    ),
    "a threshold on |h|": ({POWER, ERROR, GAIN, SILENT}, replaced(POLICY, by_amplitude)),
    "a receive scaling of another power": (
        {ZERO, BEST, ERROR, GAIN},
        replaced(POLICY, counted_on_air),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laws, patch = MUTATIONS[mutation]
    failed = failing(FAMILY, patch, monkeypatch)
    assert failed == {f"{FAMILY}: {law}" for law in laws}
