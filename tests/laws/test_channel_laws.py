"""Laws of the channels and of channel state information. Seeds are fixed; every test's false-alarm
level over all that it compares is 1e-4.

Mutations that make a test here fail: one stream for all batches of 32 devices, the device count in
a stream's name, the round's place in its block ignored, blocks that start anywhere, the block's
number left out of the seed, Sionna's generator not seeded, torch's not put back, the error's
variance not halved, one error for all devices, E1(threshold) without the mean gain, the threshold
ignored in mean_inverse.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from otafl.channels.awgn import Awgn
from otafl.channels.config import AwgnConfig, ErrorCsiConfig, PerfectCsiConfig, RayleighConfig
from otafl.channels.fading import link_budget
from otafl.channels.rayleigh import Rayleigh
from otafl.core.rng import Streams
from otafl.csi.csi import ErrorCsi, PerfectCsi

LEVEL = 1e-4


def rayleigh(
    devices: int,
    trials: Sequence[int] = (0,),
    seeds: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    path_loss_db: float | None = None,
) -> Rayleigh:
    streams = Streams(seeds or [0] * len(trials), trials, dtype=dtype)
    config = RayleighConfig(path_loss_db=path_loss_db)
    budget = link_budget([config] * len(trials), devices, streams.device, dtype)
    return Rayleigh(config, budget, devices, streams)


def fading(channel: Rayleigh, rounds: int) -> Tensor:
    """[rounds, S, K]."""
    return torch.stack([channel.state(round).h[:, :, 0, 0, 0] for round in range(rounds)])


@pytest.fixture(scope="module")
def h() -> np.ndarray:
    """[200 rounds, 10 trials, 70 devices]."""
    return fading(rayleigh(70, range(10)), 200).numpy().astype(np.complex128)


def test_rayleigh_distribution(h: np.ndarray) -> None:
    """140,000 draws: |h|^2 exponential, the phase uniform, real part N(0, 1/2), by KS; E|h|^2 = 1
    (variance 1) and E|h|^4 = 2 (variance 20)."""
    g = np.abs(h.ravel()) ** 2
    assert stats.kstest(g, "expon").pvalue > LEVEL / 5
    assert stats.kstest(np.angle(h.ravel()) / (2 * np.pi) + 0.5, "uniform").pvalue > LEVEL / 5
    assert stats.kstest(h.ravel().real * np.sqrt(2), "norm").pvalue > LEVEL / 5
    bound = stats.norm.isf(LEVEL / 10)
    assert abs(g.mean() - 1) < bound / np.sqrt(g.size)
    assert abs((g**2).mean() - 2) < bound * np.sqrt(20 / g.size)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rayleigh_independence(h: np.ndarray, axis: int) -> None:
    """All pairs of rounds, of trials and of devices: |sum h h'^* / n|^2 is exponential of mean 1/n,
    for large n; and the same for h h'."""
    rows = np.moveaxis(h, axis, 0).reshape(h.shape[axis], -1)
    n, upper = rows.shape[1], np.triu_indices(len(rows), 1)
    for other in (rows, rows.conj()):
        power = np.abs((rows @ other.T / n)[upper]) ** 2 * n
        assert power.max() < -np.log(LEVEL / 2 / power.size)


def test_draws_do_not_depend_on_what_else_is_drawn() -> None:
    """The first 10 of 50 devices, a trial alone, a round without those before it, rounds back and
    forth, another channel in between: the same bits."""
    reference = fading(rayleigh(50, [0, 1, 2]), 130)
    torch.manual_seed(5)
    torch.rand(3)
    few = rayleigh(10, [2])
    other = rayleigh(40, [7])
    for round in (129, 0, 64, 63, 65, 1, 129, 0):
        assert torch.equal(few.state(round).h[0, :, 0, 0, 0], reference[round, 2, :10])
        other.state(round)


def test_devices_of_different_batches_differ() -> None:
    values = torch.view_as_real(fading(rayleigh(70, [0, 1]), 70)).view(-1, 2)
    assert len(torch.unique(values, dim=0)) == 2 * 70 * 70


def test_points_that_share_seed_and_trial_share_the_channel() -> None:
    values = fading(rayleigh(5, [0, 1, 0], [3, 3, 3]), 2)
    assert torch.equal(values[:, 0], values[:, 2])
    assert not torch.equal(values[:, 0], values[:, 1])
    assert not torch.equal(values[:, 0], fading(rayleigh(5, [0], [4]), 2)[:, 0])


def test_the_global_generators_are_left_alone() -> None:
    state, plain_state = torch.get_rng_state(), random.getstate()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002
    rayleigh(3).state(0)
    rayleigh(3, dtype=torch.float64).state(70)
    assert torch.equal(state, torch.get_rng_state())
    assert plain_state == random.getstate()
    assert (numpy_state == np.random.get_state()[1]).all()  # noqa: NPY002


def test_importing_sionna_leaves_the_global_generators_alone() -> None:
    """In a fresh process, where Sionna is not yet imported."""
    code = (
        "import torch; torch.manual_seed(3); torch.rand(5); state = torch.get_rng_state()\n"
        "from otafl.channels.sionna_rng import sionna_stream\n"
        "with sionna_stream(1, torch.device('cpu')): pass\n"
        "assert torch.equal(state, torch.get_rng_state())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_types(dtype: torch.dtype) -> None:
    state = rayleigh(3, [0, 1], dtype=dtype, path_loss_db=100.0).state(0)
    assert state.h.shape == (2, 3, 1, 1, 1)
    assert state.h.dtype == (torch.complex64 if dtype == torch.float32 else torch.complex128)
    torch.testing.assert_close(state.gain, torch.full((2, 3), 1e-10, dtype=dtype))


def test_awgn_does_not_fade() -> None:
    streams = Streams([0, 0], [0, 1])
    budget = link_budget([AwgnConfig()] * 2, 4, streams.device, streams.dtype)
    state = Awgn(AwgnConfig(), budget, 4, streams).state(3)
    assert torch.equal(state.h, torch.ones(2, 4, 1, 1, 1, dtype=torch.complex64))
    assert torch.equal(state.gain, torch.ones(2, 4))


def test_perfect_csi() -> None:
    channel, streams = rayleigh(3, [0, 1]), Streams([0, 0], [0, 1])
    budget = link_budget([RayleighConfig()] * 2, 3, streams.device, streams.dtype)
    h, gain = channel.state(0).h, channel.state(0).gain
    csi = PerfectCsi(PerfectCsiConfig(), channel, budget, streams, {})
    assert torch.equal(csi.estimate(h, gain, 0), h)
    assert csi.variance.tolist() == [0.0, 0.0]


def error_csi(devices: int, streams: Streams, variance: Tensor) -> ErrorCsi:
    budget = link_budget([RayleighConfig()] * streams.size, devices, streams.device, streams.dtype)
    channel = rayleigh(devices, range(streams.size), dtype=streams.dtype)
    return ErrorCsi(ErrorCsiConfig(), channel, budget, streams, {"variance": variance})


def test_csi_error() -> None:
    """e = h_hat - h over 100 rounds of 2 x 200 devices: |e|^2 / variance exponential (KS), phase
    uniform, uncorrelated with h, between devices, and between rounds."""
    variance = torch.tensor([0.04, 0.5], dtype=torch.float64)
    streams = Streams([0, 0], [0, 1], dtype=torch.float64)
    csi = error_csi(200, streams, variance)
    channel = rayleigh(200, [0, 1], dtype=torch.float64)
    states = [channel.state(round).h for round in range(100)]
    gain = channel.state(0).gain
    errors = [csi.estimate(h, gain, round) - h for round, h in enumerate(states)]
    e = (torch.stack(errors).view(100, 2, 200) / variance.sqrt()[:, None]).numpy()
    h = torch.stack(states).view(100, 2, 200).numpy()
    for trial in (0, 1):
        assert stats.kstest(np.abs(e[:, trial].ravel()) ** 2, "expon").pvalue > LEVEL / 8
        angle = np.angle(e[:, trial].ravel()) / (2 * np.pi) + 0.5
        assert stats.kstest(angle, "uniform").pvalue > LEVEL / 8
    for other in (e[:, :, ::-1], e[::-1], e[:, ::-1], h):  # pairs occur twice in a reversal
        n = other.size / (2 if other is not h else 1)
        power = np.abs((e * other.conj()).mean()) ** 2 * n
        assert power < -2 * np.log(LEVEL / 8)


def test_csi_error_of_a_device_does_not_depend_on_the_others() -> None:
    h, gain = torch.zeros(2, 6, 1, 1, 1, dtype=torch.complex64), torch.ones(2, 6)
    both = error_csi(6, Streams([0, 0], [0, 1]), torch.tensor([0.1, 0.1])).estimate(h, gain, 3)
    alone = error_csi(4, Streams([0], [1]), torch.tensor([0.1]))
    alone_h = alone.estimate(h[:1, :4], gain[:1, :4], 3)
    torch.testing.assert_close(alone_h[0], both[1, :4], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("variance", [0.0, 0.3])
@pytest.mark.parametrize("gain", [1.0, 0.02])
@pytest.mark.parametrize("threshold", [0.01, 0.1, 2.0])
def test_mean_inverse_of_rayleigh(threshold: float, gain: float, variance: float) -> None:
    """E[1/g; g >= threshold] by numerical integration over the exponential law."""
    beta = gain * (1 + variance)
    expected = 0.0
    if threshold < 60 * beta:
        ends = np.log(threshold), np.log(60 * beta)
        expected, _ = integrate.quad(lambda t: np.exp(-np.exp(t) / beta) / beta, *ends)
    value = rayleigh(1).mean_inverse(threshold, gain, variance)
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_known_exponential_integrals() -> None:
    channel = rayleigh(1)
    assert channel.mean_inverse(0.1, 1.0, 0.0) == pytest.approx(1.822924, abs=1e-6)
    assert channel.mean_inverse(0.01, 1.0, 0.0) == pytest.approx(4.037930, abs=1e-6)


def awgn() -> Awgn:
    streams = Streams([0], [0])
    return Awgn(
        AwgnConfig(), link_budget([AwgnConfig()], 1, streams.device, streams.dtype), 1, streams
    )


def test_mean_inverse_of_awgn_without_error() -> None:
    assert awgn().mean_inverse(0.1, 1.0, 0.0) == 1.0
    assert awgn().mean_inverse(0.1, 0.5, 0.0) == 2.0
    assert awgn().mean_inverse(0.6, 0.5, 0.0) == 0.0


@pytest.mark.parametrize("variance", [1e-6, 0.01, 0.3, 2.0])
@pytest.mark.parametrize(("threshold", "gain"), [(0.1, 1.0), (0.5, 0.4), (0.01, 0.02)])
def test_mean_inverse_of_awgn_with_error(threshold: float, gain: float, variance: float) -> None:
    """Monte Carlo over 400,000 errors, within its own standard error."""
    z = np.random.default_rng(0).standard_normal((2, 400_000)) * np.sqrt(variance / 2)
    g = gain * ((1 + z[0]) ** 2 + z[1] ** 2)
    sample = np.where(g >= threshold, 1 / g, 0.0)
    bound = stats.norm.isf(LEVEL / 2) * sample.std() / np.sqrt(sample.size)
    assert abs(awgn().mean_inverse(threshold, gain, variance) - sample.mean()) < bound + 1e-9
