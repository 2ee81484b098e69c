"""Gradients through the real transport, against finite differences in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.gradients import K, check_gradients_fast, draw, draw_complex
from support.link_bench import (
    WEIGHTS,
    Bench,
    add_setup,
    draw_updates,
    make_bench,
    make_cohort,
    make_given,
)
from torch import Tensor

from otafl.core.contracts import Group, Link
from otafl.power.custom import CustomPolicy
from otafl.receivers.base import Eigen
from otafl.uplink.impairments.impairments import Impairments

pytestmark = pytest.mark.exact


def chosen(p: Tensor, eta: Tensor) -> CustomPolicy:
    """The policy that answers with p [S, K] and eta [S] in every segment, whatever their power."""

    def policy(link: Link) -> tuple[Tensor, Tensor]:
        return p[:, None].expand_as(link.h), eta[:, None].expand(link.h.shape[:2])

    policy.constraint = "none"  # type: ignore[attr-defined]
    return CustomPolicy(CustomPolicy.Settings.model_construct(name="chosen"), policy)


TRIALS = 2

REALS = 19

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # settings of the transport, the channel, and the impairments
    "plain": ({}, {}, {}),
    "quadrature": ({"quadrature": True, "centre": True}, {}, {"residual_phase_rad": 0.7}),
    "many_segments": ({"centre": True}, {"blocks": 24, "block_symbols": 1}, {}),
    "tails": ({}, {}, {"interference": "alpha_stable", "interference_db": 3.0}),
    "late": ({}, {}, {"timing_offset": 0.8}),
    "everything": (
        {"quadrature": True},
        {"antennas": 2, "blocks": 2, "block_symbols": 8},
        {"clip_db": 0.0, "carrier_offset": 0.2, "residual_phase_rad": 0.5, "timing_offset": 0.5},
    ),
}


def uplink(case: str) -> Bench:
    transport, channel, settings = CASES[case]
    link = make_given(make_bench("full", range(TRIALS), K, **transport), **channel)
    made = Impairments([Impairments.Settings(**settings)] * TRIALS, None, link.streams)
    return add_setup(link, impairments=made, receiver=Eigen())


def estimate(link: Bench, x: Tensor, weighting: Any = "mean", mask: Tensor | None = None) -> Tensor:
    """[S, P] of rows x [S K, P] in two blocks, unequal weights."""
    masks = None if mask is None else {"a": mask[:, :4], "b": mask[:, 4:]}
    group = Group({"a": x[:, :4], "b": x[:, 4:]}, mask=masks, weighting=weighting)
    size = len(link.budget)
    received, _ = link.deliver((group,), make_cohort((K,) * size, K, weight=WEIGHTS * size), 3)
    return torch.cat(list(received.mean[0].values()), 1)


@pytest.mark.parametrize("case", CASES)
def test_transport_by_updates_powers_and_scaling(case: str) -> None:
    """With the same noise, channels and offsets at every evaluation."""
    link = uplink(case)
    p, log_eta = 2.0 * draw_complex(TRIALS, K, seed=3), draw(TRIALS, seed=4)

    def of(x: Tensor, p: Tensor, log_eta: Tensor) -> Tensor:
        return estimate(add_setup(link, policy=chosen(p, log_eta.exp())), x)

    check_gradients_fast(of, draw_updates(TRIALS * K, REALS), p, log_eta)
