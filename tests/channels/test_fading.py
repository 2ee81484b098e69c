"""Antennas that are correlated, fading that is drawn many rounds at once, and streams of Sionna."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.made_channels import make_channel

from otafl.channels.fading import correlate_antennas

pytestmark = pytest.mark.exact


def test_antennas_are_correlated_by_the_cholesky_factor() -> None:
    """Of Sionna's exponential correlation matrix."""
    from sionna.phy.channel import exp_corr_mat

    matrix = exp_corr_mat(torch.tensor(0.3), 6, precision="double", device="cpu")
    h = torch.randn(2, 6, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.cholesky(matrix) @ h
    torch.testing.assert_close(correlate_antennas(h, 0.3, 1), expected)
    torch.testing.assert_close(correlate_antennas(h.mT, 0.3, -1), expected.mT)


MOVING = {"speed_kmh": 3.6, "carrier_hz": 3e9}


@pytest.mark.parametrize("name", ["rayleigh", "cdl-d", "umi"])
def test_the_global_generators_are_left_alone(name: str) -> None:
    state, plain_state = torch.get_rng_state(), random.getstate()
    numpy_state = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    surface = {"ris": {"elements": 3, "rule": "random"}} if name == "rayleigh" else {}
    for dtype, keys in ((torch.float32, {}), (torch.float64, MOVING)):
        make_channel(name, 3, dtype=dtype).get_state(70)
        channel = make_channel(name, 3, dtype=dtype, antennas=2, block_symbols=5, **surface, **keys)
        for round in (0, 70):
            channel.get_state(round).extend_to(25)
    assert torch.equal(state, torch.get_rng_state())
    assert plain_state == random.getstate()
    assert (numpy_state == np.random.get_state()[1]).all()  # type: ignore[index]  # noqa: NPY002


@pytest.mark.slow
def test_importing_sionna_leaves_the_global_generators_alone() -> None:
    """In a fresh process, where Sionna is not yet imported."""
    code = (
        "import torch; torch.manual_seed(3); torch.rand(5); state = torch.get_rng_state()\n"
        "from otafl.channels.fading import use_sionna_stream\n"
        "with use_sionna_stream(1, torch.device('cpu')): pass\n"
        "assert torch.equal(state, torch.get_rng_state())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
