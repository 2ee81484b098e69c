"""Laws of the 3GPP channels. Seeds are fixed; every test's false-alarm level over all that it
compares is 1e-4.

Mutations that make a test here fail: the sign of the delays' phase, groups at the edges of their
bands, the delay spread or the bandwidth of another trial, tap powers for their roots, the line of
sight coloured with the antennas' correlation, one phase for all antennas' taps, alpha for its
cosine in the Doppler shift, kilometres an hour for metres a second, the bearing left out, the
vertical angle left out of the array's phase, a ray's offset without its sign, the block's time or
index left out, one draw for all trials or all devices, rounds drawn as if the first, draws that
depend on how many devices there are.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from otafl.channels.cdl import Cdl, cdl_profile, cdl_rays
from otafl.channels.config_3gpp import CellConfig
from otafl.channels.fading import link_budget
from otafl.channels.ofdm import group_frequencies, rotations
from otafl.channels.plane_waves import PlaneWaves, line_array
from otafl.channels.sionna_rng import sionna_stream
from otafl.channels.tdl import arrival_cosines, sum_of_sinusoids, tdl_profile
from otafl.core import registry
from otafl.core.rng import Streams
from otafl.core.settings import stackable_fields

LEVEL = 1e-4
CPU = torch.device("cpu")
PROFILES = [f"{family}-{letter}" for family in ("tdl", "cdl") for letter in "abcde"]
CELLS = ["umi", "uma", "rma"]


def make(
    name: str,
    devices: int,
    trials: Sequence[int] = (0,),
    dtype: torch.dtype = torch.float32,
    each: Sequence[dict[str, Any]] | None = None,
    **settings: Any,
) -> Any:
    """A channel of these trials; `each` has settings of their own."""
    kind = registry.settings("channel", name)
    configs = [kind(**(settings | own)) for own in each or [{}] * len(trials)]
    streams = Streams([5] * len(trials), trials, dtype=dtype)
    budget = link_budget(configs, devices, streams.device, dtype)
    hyper = {
        key: torch.tensor([getattr(config, key) for config in configs], dtype=dtype)
        for key in stackable_fields(kind)
        if getattr(configs[0], key) is not None
    }
    return registry.component("channel", name)(configs[0], budget, devices, streams, hyper)


def draws(channel: Any, rounds: int) -> np.ndarray:
    """[rounds, S, K, A, F] of the first block."""
    h = torch.stack([channel.state(round).h[:, :, :, 0] for round in range(rounds)])
    return h.numpy().astype(np.complex128)


def small(error: np.ndarray | complex, draws: int, comparisons: int = 1) -> bool:
    """Whether a mean over so many unit-variance complex numbers of mean zero is that small."""
    bound = -math.log(LEVEL / max(comparisons, np.size(error)))
    return bool((np.abs(error) ** 2 * draws < bound).all())


@pytest.mark.parametrize("letter", "ABCDE")
def test_tdl_frequency_covariance(letter: str) -> None:
    """6,400 draws of 8 groups over 20 MHz, against Sionna's covariance. The variance of a sample
    covariance of normal variables of variance one is 1 / n, and less with a line of sight."""
    from sionna.phy.ofdm import tdl_freq_cov_mat

    h = draws(make(f"tdl-{letter.lower()}", 100, bandwidth_hz=20e6, delay_spread_s=1e-7), 64)
    h = h.reshape(-1, 8)
    known = tdl_freq_cov_mat(letter, 2.5e6, 8, 1e-7, "double", "cpu").numpy()
    assert small(h.T @ h.conj() / len(h) - known, len(h))


@pytest.mark.parametrize("letter", "abc")
@pytest.mark.parametrize("speed", [None, 30.0])
def test_tdl_without_line_of_sight_is_rayleigh(letter: str, speed: float | None) -> None:
    """|h|^2 exponential and the phase uniform (KS) over 2,000 devices; of moving devices it is a
    sum of 20 sinusoids a tap, far closer to normal than 2,000 draws can tell."""
    channel = make(f"tdl-{letter}", 2000, speed_kmh=speed, subcarrier_groups=1)
    h = channel.state(7).h.numpy().ravel()
    assert stats.kstest(np.abs(h) ** 2, "expon").pvalue > LEVEL / 2
    assert stats.kstest(np.angle(h) / (2 * np.pi) + 0.5, "uniform").pvalue > LEVEL / 2
    assert channel.closed_form


@pytest.mark.parametrize(("letter", "k_db"), [("d", 13.3), ("e", 22.0)])
@pytest.mark.parametrize("speed", [None, 30.0])
def test_tdl_line_of_sight_is_rician(letter: str, k_db: float, speed: float | None) -> None:
    """Without delays |h|^2 is Rice's square law (KS, 4,000 draws). The K-factor of the first tap is
    that of TR 38.901 Tables 7.7.2-4 and 5, and that of all follows."""
    profile = tdl_profile(letter.upper())
    assert 10 * math.log10(profile.los_power / profile.power[0]) == pytest.approx(k_db, abs=1e-9)
    k = profile.los_power / float(profile.power.sum())
    settings: dict[str, Any] = {"delay_spread_s": 0.0, "antennas": 2, "antenna_correlation": 0.7}
    channel = make(f"tdl-{letter}", 4000, speed_kmh=speed, subcarrier_groups=1, **settings)
    h = channel.state(3).h.numpy()[0, :, :, 0, 0]
    for antenna in range(2):
        power = np.abs(h[:, antenna]) ** 2 * 2 * (k + 1)
        assert stats.kstest(power, stats.ncx2(2, 2 * k).cdf).pvalue > LEVEL / 2
    assert not channel.closed_form


def test_tdl_antennas_are_correlated() -> None:
    """r^|a-b| of what is scattered; 6,400 draws."""
    h = draws(make("tdl-b", 100, antennas=3, antenna_correlation=0.6, subcarrier_groups=1), 64)
    h = h.reshape(-1, 3)
    known = 0.6 ** np.abs(np.arange(3)[:, None] - np.arange(3))
    assert small(h.T @ h.conj() / len(h) - known, len(h))


@pytest.mark.parametrize("letter", ["a", "d"])
def test_tdl_time_correlation_is_jakes(letter: str) -> None:
    """Rounds 10 ms apart and blocks 1 ms apart at 10 km/h and 3.5 GHz: P J0(2 pi f_D tau) and the
    line of sight's turning phase, over 3,000 devices."""
    f_d = 10 / 3.6 * 3.5e9 / 299_792_458
    settings: dict[str, Any] = {"round_interval_s": 0.01, "block_symbols": 1000}
    channel = make(f"tdl-{letter}", 3000, speed_kmh=10.0, subcarrier_groups=1, **settings)
    profile = tdl_profile(letter.upper())
    start = channel.state(0).over(6000)[0, :, 0, :, 0].numpy()
    tau = [0.001 * block for block in range(6)] + [0.01 * round for round in (1, 2, 3)]
    rounds = [channel.state(round).h[0, :, 0, 0].numpy() for round in (1, 2, 3)]
    h = np.concatenate([start, *rounds], 1)
    for lag, column in zip(tau, h.T, strict=True):
        known = float(profile.power.sum()) * special.j0(2 * np.pi * f_d * lag)
        known += profile.los_power * np.exp(2j * np.pi * 0.7 * f_d * lag)
        assert small((column * start[:, 0].conj()).mean() - known, 3000, len(tau))


@pytest.mark.parametrize("letter", "AD")
def test_sum_of_sinusoids_is_sionnas(letter: str) -> None:
    """Sionna's TDL with the draws that it makes, at its sample times: the same taps to rounding."""
    from sionna.phy import config
    from sionna.phy.channel.tr38901 import TDL

    sionna = TDL(letter, 1.0, 3.5e9, min_speed=8.0, num_rx_ant=2, precision="double", device="cpu")
    with sionna_stream(3, CPU):
        h, _ = sionna(4, 5, 100.0)
    taps = h.shape[5]
    with sionna_stream(3, CPU):

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, dtype=torch.float64, generator=config.torch_rng("cpu"))

        uniform(4, 1, 1, 1, 1, 1, 1, 1)
        spread = (2 * uniform(4, 1, 1, 1, 1, taps, 1, 20) - 1) * math.pi / 20
        phase = uniform(4, 1, 2, 1, 1, taps, 1, 20) - 0.5
        first = uniform(4, 1, 1, 1, 1, 1, 1).flatten() - 0.5
    cycles = torch.arange(5, dtype=torch.float64)[:, None] / 100 * 8.0 * 3.5e9 / 299_792_458
    start = rotations(phase.view(1, 4, 2, taps, 20), torch.float64)
    ours = sum_of_sinusoids(cycles, arrival_cosines(spread.view(1, 4, taps, 20)), start)
    profile = tdl_profile(letter)
    ours = ours * profile.power.sqrt()
    turn = torch.polar(torch.ones(5, 4).double(), 2 * math.pi * (first + 0.7 * cycles))
    ours[:, 0, :, :, 0] += math.sqrt(profile.los_power) * turn[:, :, None]
    theirs = h[:, 0, :, 0, 0].permute(3, 0, 1, 2)
    torch.testing.assert_close(ours[:, 0], theirs, rtol=0, atol=1e-9)


class Phases:
    """Stands for `Pairs` with given phases, in radians."""

    def __init__(self, phase: Tensor) -> None:
        self.streams = Streams([0], [0], dtype=torch.float64)
        self._phase = phase

    def once(self, purpose: str, shape: tuple[int, ...]) -> Tensor:
        return self._phase / (2 * math.pi)


@pytest.mark.parametrize("letter", "AE")
def test_cdl_is_sionnas(letter: str) -> None:
    """Sionna's CDL for one device at a bearing of 0.4, three antennas, at four times, with the
    phases and couplings that it draws: the same frequency responses to rounding."""
    from sionna.phy.channel import cir_to_ofdm_channel
    from sionna.phy.channel.tr38901 import CDL, PanelArray

    place: dict[str, Any] = {"precision": "double", "device": "cpu"}
    server = PanelArray(1, 3, "single", "V", "omni", 3.5e9, **place)
    device = PanelArray(1, 1, "single", "V", "omni", 3.5e9, **place)
    velocity = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)
    sionna = CDL(
        letter,
        3e-7,
        3.5e9,
        device,
        server,
        "uplink",
        bs_orientation=[0.4, 0.0, 0.0],
        ut_velocity=velocity,
        **place,
    )
    orders: list[Tensor] = []
    shuffle, step_10 = sionna._shuffle_angles, sionna._cir_gen._step_10
    drawn: list[Tensor] = []

    def recorded(angles: Tensor) -> Tensor:
        places = torch.arange(20, dtype=torch.float64).expand(angles.shape)
        orders.append(shuffle(places).long())
        return torch.gather(angles, -1, orders[-1])

    def kept(shape: Any) -> Tensor:
        drawn.append(step_10(shape))
        return drawn[-1]

    sionna._shuffle_angles, sionna._cir_gen._step_10 = recorded, kept
    frequency = group_frequencies(torch.tensor([2e7]), 6)
    with sionna_stream(1, CPU):
        a, tau = sionna(1, 4, 50.0)
    theirs = cir_to_ofdm_channel(frequency[0], a, tau)[0, 0, :, 0, 0]  # [A, time, F]

    profile = cdl_profile(letter)
    order = [orders[place] for place in (0, 2, 1, 3)]  # azimuth, zenith of arrival, of departure
    coupling = torch.stack(order, 2)[:, :, :, 0]
    bearing = torch.full((1, 1), 0.4, dtype=torch.float64)
    rays = cdl_rays(profile, coupling, bearing, torch.tensor([3e-7], dtype=torch.float64))
    phase = drawn[0][0, 0, 0, ..., 0].reshape(1, 1, -1)
    if profile.los_power:
        phase = torch.cat([phase, torch.zeros(1, 1, 1)], -1)
    waves = PlaneWaves(rays, 3, frequency, Phases(phase), 3.5e9)  # type: ignore[arg-type]
    time = torch.arange(4, dtype=torch.float64) / 50
    ours = waves.moved((time[:, None] * velocity).view(4, 1, 1, 3))[:, 0, 0]
    torch.testing.assert_close(ours.transpose(0, 1), theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [*PROFILES, *CELLS])
@pytest.mark.parametrize("speed", [None, 30.0])
def test_mean_power_is_one(name: str, speed: float | None) -> None:
    """64 rounds of 50 devices of 4 trials, two antennas and two groups. Over a device's rounds the
    mean of |h|^2 has a standard deviation of at most 1 / 8 when rounds are independent, which a
    speed of 30 km/h and seconds between rounds are nearly; 200 links are independent."""
    h = draws(make(name, 50, range(4), speed_kmh=speed, antennas=2, subcarrier_groups=2), 64)
    link = (np.abs(h) ** 2).mean((0, 3, 4)).ravel()
    bound = stats.norm.isf(LEVEL / 2) * link.std() / math.sqrt(link.size)
    assert abs(link.mean() - 1) < bound
    assert bound < 0.1
    cellwise = (np.abs(h) ** 2).mean((0, 1, 2))
    assert (np.abs(cellwise - 1) < 0.15).all()


@pytest.mark.parametrize(("letter", "least"), [("a", 0.0), ("d", 0.9)])
def test_cdl_antenna_covariance_follows_from_its_rays(letter: str, least: float) -> None:
    """E h h^H = sum_m P_m a_m a_m^H over the rays of a device: unit diagonal, positive
    semi-definite; 8,000 draws of 4 antennas. Neighbours are strongly correlated with a line of
    sight, and never uncorrelated."""
    channel: Cdl = make(f"cdl-{letter}", 2, antennas=4, subcarrier_groups=1)
    blocks = channel.waves.fresh(torch.arange(8_000) << 20)[:, 0, :, :, 0].numpy()
    rays = channel.rays
    steering = torch.polar(
        torch.ones_like(line_array(rays.azimuth, rays.zenith, 4)),
        2 * math.pi * line_array(rays.azimuth, rays.zenith, 4),
    )
    known = torch.einsum("ukp,ukpa,ukpb->ukab", rays.power + 0j, steering, steering.conj())
    for device in range(2):
        h = blocks[:, device].astype(np.complex128)
        matrix = known[0, device].numpy()
        assert np.allclose(np.diag(matrix), 1)
        assert np.linalg.eigvalsh(matrix).min() > -1e-12
        assert abs(matrix[0, 1]) > max(least, 0.05)
        assert small(h.T @ h.conj() / len(h) - matrix, len(h), 32)


def test_devices_see_cdl_from_bearings_of_their_own() -> None:
    def angles(**settings: Any) -> Tensor:
        return make("cdl-d", 400, **settings).rays.azimuth[0, :, -1]

    assert angles(sector_deg=0).unique().numel() == 1
    spread = angles(sector_deg=90) - angles(sector_deg=0)
    assert stats.kstest(spread.numpy() / (math.pi / 2) + 0.5, "uniform").pvalue > LEVEL


@pytest.mark.parametrize("name", ["tdl-a", "tdl-e", "cdl-c", "umi"])
def test_draws_are_independent(name: str) -> None:
    """Between rounds, blocks, devices and trials: 64 rounds of 40 devices of 4 trials."""
    channel = make(name, 40, range(4), block_symbols=10, subcarrier_groups=1)
    states = [channel.state(round).over(20)[:, :, 0, :, 0] for round in range(64)]
    h = torch.stack(states).numpy().astype(np.complex128)  # [64, 4, 40, 2]
    first, second = h[..., 0], h[..., 1]
    others = {
        "block": (first, second),
        "round": (first[:-1], first[1:]),
        "next round's block": (second[:-1], first[1:]),
        "trial": (first[:, :-1], first[:, 1:]),
        "device": (first[:, :, :-1], first[:, :, 1:]),
    }
    for a, b in others.values():
        assert small((a * b.conj()).mean(), a.size, 2 * len(others))
        assert small((a * b).mean(), a.size, 2 * len(others))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("tdl-a", {}),
    ("tdl-d", {"antennas": 3, "antenna_correlation": 0.5, "block_symbols": 100}),
    ("tdl-e", {"antennas": 2, "speed_kmh": 30.0, "block_symbols": 100}),
    ("cdl-a", {"antennas": 2, "block_symbols": 100}),
    ("cdl-d", {"speed_kmh": 3.0, "block_symbols": 100}),
    ("umi", {"antennas": 2, "block_symbols": 100}),
    ("uma", {"speed_kmh": 30.0, "block_symbols": 100}),
    ("rma", {"speed_kmh": 100.0, "mobility": "linear", "block_symbols": 50}),
]


@pytest.mark.parametrize(("name", "settings"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_depends_on_its_round_alone(
    name: str, settings: dict[str, Any], dtype: torch.dtype
) -> None:
    """Not on the order of rounds, on what a trial is stacked with, on how many devices there are,
    or on how many blocks are asked for; torch's generator is left alone."""
    rounds = [1, 70, 0, 2**40]
    torch.manual_seed(11)
    before = torch.get_rng_state()
    whole = make(name, 4, [0, 1, 2], dtype, **settings)
    states = {round: whole.state(round) for round in rounds}
    others: list[tuple[Any, Callable[[Tensor], Tensor]]] = [
        (make(name, 4, [1], dtype, **settings), lambda h: h[1:2]),
        (make(name, 2, [0, 1, 2], dtype, **settings), lambda h: h[:, :2]),
        (make(name, 4, [2, 2, 1], dtype, **settings), lambda h: h[[2, 2, 1]]),
    ]
    larger = make(name, 70, [2], dtype, **settings)
    for round in reversed(rounds):
        h, gain = states[round].h, states[round].gain
        assert h.shape == (3, 4, settings.get("antennas", 1), 1, 8)
        assert h.dtype == dtype.to_complex()
        assert gain.shape == (3, 4)
        assert gain.dtype == dtype
        for other, part in others:
            assert torch.equal(other.state(round).h, part(h))
            assert torch.equal(other.state(round).gain, part(gain))
        assert torch.equal(larger.state(round).h[0, :4], h[2])
        if "block_symbols" in settings:
            long, short = states[round].over(1000), states[round].over(400)
            assert torch.equal(long[:, :, :, :1], h)
            # a row of blocks is summed up in batches, whose last bits may differ
            torch.testing.assert_close(long[:, :, :, : short.shape[3]], short)
            assert long.shape[3] == 1000 // settings["block_symbols"]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["tdl-c", "cdl-c"])
def test_bandwidth_and_delay_spread_are_each_trials_own(name: str) -> None:
    """A stack of two bandwidths and two delay spreads, against each alone; only their product
    matters, so the last two agree."""
    each = [
        {"bandwidth_hz": 2e7, "delay_spread_s": 1e-7},
        {"bandwidth_hz": 2e7, "delay_spread_s": 2e-7},
        {"bandwidth_hz": 4e7, "delay_spread_s": 1e-7},
    ]
    stack = make(name, 3, [1, 1, 1], torch.float64, each).state(2).h
    for row, own in enumerate(each):
        assert torch.equal(make(name, 3, [1], torch.float64, [own]).state(2).h[0], stack[row])
    assert not torch.allclose(stack[0], stack[1])
    torch.testing.assert_close(stack[1], stack[2])


def test_groups_are_at_the_centres_of_equal_parts_of_the_band() -> None:
    frequency = group_frequencies(torch.tensor([8.0, 80.0]), 4)
    assert frequency.tolist() == [[-3.0, -1.0, 1.0, 3.0], [-30.0, -10.0, 10.0, 30.0]]


@pytest.mark.parametrize("settings", [{"speed_kmh": 3.0}, {}])
def test_standing_devices_keep_their_channel(settings: dict[str, Any]) -> None:
    """At speed 0 the channel stays; without a speed it is drawn anew."""
    for name in ("tdl-d", "cdl-b", "uma"):
        channel = make(name, 3, speed_kmh=0.0 if settings else None)
        same = torch.equal(channel.state(0).h, channel.state(1000).h)
        assert same == bool(settings)


def test_settings_that_say_nothing_are_refused() -> None:
    for name in ("cdl-a", "umi"):
        with pytest.raises(ValueError, match=r"antenna_correlation 0\.5 has no meaning here"):
            registry.settings("channel", name)(antenna_correlation=0.5)
    umi = registry.settings("channel", "umi")
    assert issubclass(umi, CellConfig)
    with pytest.raises(ValueError, match="path_loss_db 90: the cell has a path loss of its own"):
        umi(path_loss_db=90)
    with pytest.raises(ValueError, match="min_distance_m 10 leaves no room in cell_radius_m 5"):
        umi(cell_radius_m=5)
    with pytest.raises(ValueError, match="needs speed_kmh, say 3"):
        umi(mobility="linear")
    with pytest.raises(ValueError, match="not defined for rma"):
        registry.settings("channel", "rma")(o2i_loss="high")


def test_sionna_is_imported_late() -> None:
    code = (
        "import sys, otafl.channels.tdl, otafl.channels.cdl, otafl.channels.cell\n"
        "import otafl.channels.trace\n"
        "assert 'sionna' not in sys.modules\n"
        "import otafl.channels.config_3gpp"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
