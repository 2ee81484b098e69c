"""The order of the policies' errors (1/K^2) [sum m (c - 1)^2 + N / eta] given the channel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.power_links import (
    HYPER,
    N,
    compute_received_gain,
    make_policy,
    solve,
)

from otafl.core.contracts import Coefficients, Link

pytestmark = pytest.mark.exact

SNRS_DB = (-5.0, 10.0, 25.0)
STATES = 8


def scene(snr_db: float, devices: int) -> Link:
    """A link of eight Rayleigh states with unequal symbol powers and budgets."""
    rng = np.random.default_rng([int(snr_db) + 50, devices])
    z = rng.standard_normal((2, STATES, 1, devices)) * math.sqrt(0.5)
    ones = torch.ones(STATES, devices, dtype=torch.float64)
    return Link(
        h=torch.from_numpy(z[0] + 1j * z[1]),
        gain=ones,
        budget=torch.from_numpy(10 ** (snr_db / 10) * rng.uniform(0.5, 2.0, (STATES, devices))),
        symbol_power=torch.from_numpy(rng.uniform(0.3, 2.0, (STATES, 1, devices))),
        noise_variance=N * ones[:, 0],
        transmit_mask=ones.bool(),
        is_linear=True,
        hyper={name: value * ones[:, 0] for name, value in HYPER.items()},
    )


def coefficients(case: str, link: Link) -> Coefficients:
    fields = {"tci, peak": {"constraint": "peak"}, "smcv": {"variation": HYPER["variation"]}}
    return solve(make_policy(case.split(",")[0], **fields.get(case, {})), link)


def test_smcv_is_best_where_symbols_share_a_mean() -> None:
    """With correlation 1 / (1 + beta), its closed-form error is below that of every other peak
    policy in each of eight states, unequal symbol powers included."""
    beta = HYPER["variation"]
    link = scene(10.0, 8)
    errors = {}
    for case in ("smcv", "cao_static", "full", "ci", "cotaf", "gbma", "tci, peak"):
        got = coefficients(case, link)
        off = (compute_received_gain(link, got) - 1)[:, 0]
        d = off * link.symbol_power[:, 0].sqrt()
        cross = (beta * d.square().sum(-1) + d.sum(-1).square()) / (1 + beta)
        errors[case] = cross + N / got.eta[:, 0]
    best = errors.pop("smcv")
    for case, error in errors.items():
        assert (best <= error * (1 + 1e-12)).all(), case


def test_the_order_of_the_policies() -> None:
    """Given the channel, no peak policy beats cao_static, whose error is below full's and ci's in
    each of eight states at every SNR; and the one with ideal gains bounds ci."""
    for snr_db in SNRS_DB:
        link = scene(snr_db, 10)
        errors = {}
        for case in ("cao_static", "full", "ci", "gbma", "cotaf", "tci, peak", "genie", "smcv"):
            got = coefficients(case, link)
            off = (compute_received_gain(link, got) - 1)[:, 0]
            errors[case] = (link.symbol_power[:, 0] * off**2).sum(-1) + N / got.eta[:, 0]
        assert (errors["genie"] <= errors["ci"]).all()
        best = errors.pop("cao_static")
        del errors["genie"]
        for case, error in errors.items():
            assert (best <= error * (1 + 1e-12)).all(), case
