"""The Rice law in closed form against SciPy and numerical integration."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, special, stats

from otafl.channels import rice

pytestmark = pytest.mark.exact


def test_mean_amplitude_of_rice() -> None:
    """By the law's mean in SciPy; Rayleigh's and 1 at the ends."""
    k_db = torch.tensor([-100.0, -3.0, 0.0, 6.0, 15.0, 80.0], dtype=torch.float64)
    k = 10 ** (k_db / 10)
    expected = [stats.rice.mean(math.sqrt(2 * x), scale=math.sqrt(0.5 / (x + 1))) for x in k[1:5]]
    expected = [math.sqrt(math.pi) / 2, *expected, 1.0]
    assert rice.mean_amplitude(k).tolist() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("line", "scattered", "threshold"),
    [(1.0, 2.0, 0.5), (0.4, 1e-4, 0.1), (1.0, 0.05, 1.1)],
)
def test_mean_inverse_of_rice(line: float, scattered: float, threshold: float) -> None:
    """By numerical integration over the non-central chi-square law."""
    law = stats.ncx2(2, 2 * line / scattered)
    expected, _ = integrate.quad(
        lambda g: law.pdf(2 * g / scattered) * 2 / scattered / g,
        threshold,
        (math.sqrt(line) + 14 * math.sqrt(scattered)) ** 2,
        points=[max(threshold, line)],
        limit=400,
    )
    assert rice.rician_mean_inverse(line, scattered, threshold) == pytest.approx(expected, rel=1e-9)


def test_mean_inverse_of_rice_at_its_ends() -> None:
    """Without a line of sight E1, without scattering 1 / g, and no step where the one takes over
    from the other."""
    expected = special.exp1(0.1 / 0.7) / 0.7
    assert rice.rician_mean_inverse(0.0, 0.7, 0.1) == pytest.approx(expected, rel=1e-12)
    assert rice.rician_mean_inverse(0.5, 0.0, 0.1) == 2.0
    assert rice.rician_mean_inverse(0.5, 0.0, 0.6) == 0.0
    assert rice.rician_mean_inverse(1.0, 1.001e-7, 0.1) == pytest.approx(1.0, rel=3e-7)
