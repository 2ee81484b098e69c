"""Mistakes about who is counted and how far away devices are, each of which makes the laws fail
that are named, and no other of that policy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from support.mutations import Patch, failing, replaced

SOME, FAR, CELL = "K is that of who sends", "path loss", "scaling by the large-scale gain"
MEAN, GAMMA = "budget of the mean device", "power of gamma"


def seen(policy: str, change: Any) -> Patch:
    """A policy that sees another link."""

    def make(real: Any) -> Any:
        return lambda self, state, link: real(self, state, change(link))

    return replaced(f"otafl.power.{policy}.coefficients", make)


def amplitude_of_the_gain(link: Any) -> Any:
    return dataclasses.replace(link, gain=link.gain.sqrt())


def gain_of_all(link: Any) -> Any:
    return dataclasses.replace(link, gain=link.gain.mean(1, keepdim=True).expand_as(link.gain))


def without_gain(link: Any) -> Any:
    return dataclasses.replace(link, gain=torch.ones_like(link.gain))


def mean_of_all(real: Any) -> Any:
    """The mean over the population, in place of who sends."""

    def common(cost: Any, link: Any, reference: str) -> Any:
        if reference == "max":
            return real(cost, link, reference)
        return (cost * link.sends[:, None]).mean(-1, keepdim=True)

    return common


def gamma_of_all(real: Any) -> Any:
    return lambda link, gamma: real(
        dataclasses.replace(link, sends=torch.ones_like(link.sends)), gamma
    )


def no_gain(real: Any) -> Any:
    return lambda statistics, relative: torch.ones_like(real(statistics, relative))


def k_of_the_population(real: Any) -> Any:
    """A mean over all devices of the trial, in place of who sends."""

    def unit(self: Any) -> Any:
        cohort = self.symbols.sent.cohort
        return real.func(self) * cohort.rows_of[:, None] / cohort.population

    return property(unit)


MUTATIONS: dict[str, tuple[str, set[str], Patch]] = {
    "gain's root for the gain (blind)": (
        "blind",
        {FAR, CELL},
        seen("blind:Blind", amplitude_of_the_gain),
    ),
    "gain of the population (blind)": ("blind", {CELL}, seen("blind:Blind", gain_of_all)),
    "mean device of the population": (
        "gbma",
        {MEAN},
        replaced("otafl.power.scalars.common", mean_of_all),
    ),
    "gamma of the population": (
        "gbma",
        {GAMMA},
        replaced("otafl.power.gbma.fixed_power", gamma_of_all),
    ),
    "threshold without path loss (tci)": (
        "tci",
        {FAR},
        replaced("otafl.power.tci.reference_gain", no_gain),
    ),
    "threshold without path loss (cotaf)": (
        "cotaf",
        {FAR},
        replaced("otafl.power.cotaf.reference_gain", no_gain),
    ),
    "open loop without path loss": (
        "open_loop",
        {FAR},
        seen("open_loop:OpenLoop", without_gain),
    ),
    "K of the population": (
        "ci",
        {SOME},
        replaced("otafl.uplink.on_air:OnAir.unit", k_of_the_population),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, laws, patch = MUTATIONS[mutation]
    failed = failing(f"power {policy}:", patch, monkeypatch)
    assert failed == {f"power {policy}: {law}" for law in laws}
