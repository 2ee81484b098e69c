"""`gamma` of gbma and tci: FedRLR's figures give gamma = 1 itself, not an SNR."""

from __future__ import annotations

import pytest
import torch
from support.link_bench import make_bench

from otafl.core.contracts import Cohort, Group

pytestmark = pytest.mark.exact

F64 = torch.float64
K, TRIALS = 4, 3


@pytest.mark.parametrize(
    ("policy", "weighting", "snr_db"),
    [("gbma", "mean", 40.0), ("gbma", "none", -30.0), ("tci", "none", 40.0)],
)
def test_transmit_power_is_gamma(policy: str, weighting: str, snr_db: float) -> None:
    """Rows of power 1 (as they would be without sqrt(w_k) = 1/2): |p|^2 is gamma or gamma / |h|^2,
    eta what makes the sum unbiased, and the recorded power gamma, whatever the SNR asks."""
    gamma = 2.5
    options = {"gamma": gamma}
    link = make_bench(policy, range(TRIALS), K, snr_db, threshold=0.1, policy_options=options)
    pair = torch.arange(TRIALS * K)
    weight = torch.full((TRIALS * K,), 1 / K, dtype=F64)
    cohort = Cohort.create(pair // K, pair % K, weight, (K,) * TRIALS, K)
    x = torch.ones(TRIALS * K, 6, dtype=F64) * (0.5 if weighting == "none" else 1.0)
    _, report = link.deliver((Group({"x": x}, weighting=weighting),), cohort)
    h, p = report.saved_tensors["h/0"][:, 0], report.saved_tensors["p/0"][:, 0]
    scale = gamma * (K if weighting == "none" else 1)
    active = h.abs().square() >= 0.1 if policy == "tci" else torch.ones_like(h, dtype=torch.bool)
    expected = scale / h.abs().square() if policy == "tci" else torch.full_like(h.abs(), scale)
    torch.testing.assert_close(p.abs().square(), expected * active)
    assert (h * p).imag.abs().max() < 1e-9
    target = torch.pi / 4 if policy == "gbma" and weighting == "mean" else 1.0
    torch.testing.assert_close(
        report.saved_tensors["eta/0"][:, 0], torch.full((TRIALS,), scale * target, dtype=F64)
    )
    power = gamma / h.abs().square() if policy == "tci" else torch.full_like(h.abs(), gamma)
    torch.testing.assert_close(report.power, power * active)
