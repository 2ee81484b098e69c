"""States of flat channels, whose draws are Sionna's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.made_channels import FAR, make_channel, take_blocks
from support.rounding import assert_agree
from torch import Tensor

from otafl.channels import scattering
from otafl.channels.base import Channel
from otafl.channels.sionna_rng import use_sionna_stream
from otafl.core.rng import Streams

pytestmark = pytest.mark.exact

KINDS = [
    pytest.param({}, id="independent"),
    pytest.param({"antennas": 4}, id="antennas"),
    pytest.param({"antennas": 3, "antenna_correlation": 0.7}, id="correlated"),
    pytest.param({"speed_kmh": 30.0, "antennas": 3, "antenna_correlation": 0.7}, id="moving"),
    pytest.param({"ris": {"elements": 5, "rule": "random"}}, id="surface"),
    pytest.param({"ris": {"elements": 5}, "antennas": 2, "speed_kmh": 3.0}, id="moving, surface"),
    pytest.param({"ris": {"elements": 5, "rule": "align_sum"}, "antennas": 2}, id="aligned sum"),
]


@pytest.mark.parametrize("keys", KINDS)
@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_block_is_a_function_of_round_and_block(
    kind: str, keys: dict[str, Any], dtype: torch.dtype
) -> None:
    """Whatever was asked for before and however many blocks there are; the first block is h."""
    keys = {**keys, "block_symbols": 100}
    bounds = {"rtol": 0.0, "atol": 1e-5 if dtype == torch.float32 else 1e-9}
    one, other = (make_channel(kind, 2, (0, 1), dtype, **keys) for _ in range(2))
    antennas, rounds = keys.get("antennas", 1), (0, 1, 7, 8, 63, 64, FAR - 1, FAR)
    expected = {t: take_blocks(one.get_state(t), 21) for t in rounds}
    for t in reversed(rounds):
        state = other.get_state(t)
        assert state.h.shape == (2, 2, antennas, 1, 1)
        assert state.h.dtype == dtype.to_complex()
        torch.testing.assert_close(state.h[..., 0], expected[t][..., :1], **bounds)
        for count in (3, 1, 8, 16, 2):
            assert take_blocks(state, count).shape == (2, 2, antennas, count)
            torch.testing.assert_close(
                take_blocks(state, count), expected[t][..., :count], **bounds
            )
        assert torch.equal(other.get_state(t).h, state.h)
    values = torch.view_as_real(torch.stack(list(expected.values()))).flatten(0, -2)
    assert len(torch.unique(values, dim=0)) == len(values)


@pytest.mark.parametrize("keys", [*KINDS[:4], KINDS[4]])
@pytest.mark.parametrize("kind", ["rayleigh", "rician"])
def test_trials_and_devices_do_not_depend_on_each_other(kind: str, keys: dict[str, Any]) -> None:
    keys = {**keys, "block_symbols": 10}
    each = [{"k_factor_db": level} if kind == "rician" else {} for level in (0.0, 3.0, 9.0)]
    full = make_channel(kind, 40, (0, 1, 2), each=each, **keys)
    alone = make_channel(kind, 5, (1,), each=each[1:2], **keys)
    # so far off the rounding of a cosine turns moving devices by up to a radian
    for t in (0, 9, 70 if "speed_kmh" in keys else FAR):
        whole, part = full.get_state(t), alone.get_state(t)
        assert_agree(part.h[0], whole.h[1, :5])
        assert_agree(take_blocks(part, 6)[0], take_blocks(whole, 6)[1, :5])


def test_without_blocks_the_channel_lasts() -> None:
    state = make_channel("rayleigh", 3).get_state(0)
    assert state.block_symbols is None
    assert state.extend_to(10**6) is state.h
    assert make_channel("rayleigh", 3, block_symbols=50).get_state(0).extend_to(151).shape == (
        1,
        3,
        1,
        4,
        1,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("antennas", [1, 3, 16])
def test_draws_are_sionnas(antennas: int, dtype: torch.dtype) -> None:
    """Devices 32 to 39 of the second batch, by Sionna's class and generator, but for the rounding
    of its sqrt(1/2), which depends on the processor: in all rounds that are drawn at once, the
    first block and the third and fourth."""
    from sionna.phy.channel import RayleighBlockFading

    precision = {torch.float32: "single", torch.float64: "double"}[dtype]
    rounding = 2 * torch.finfo(dtype).eps
    streams = Streams([0], [4])
    sionna = RayleighBlockFading(1, antennas, 32, 1, precision=precision, device="cpu")
    one = make_channel("rayleigh", 40, (4,), dtype, antennas=antennas, block_symbols=10)
    for purpose, rounds, those in (
        ("fading/1", max(8, 64 // antennas), slice(0, 1)),
        ("fading/2^1/1", max(8, 64 // antennas) // 2, slice(2, 4)),
    ):
        (seed,) = streams.draw_seeds(purpose, 1)
        count = those.stop - those.start
        with use_sionna_stream(seed, streams.device):
            taps, _ = sionna(rounds * count, 1)
        expected = taps.view(rounds, count, antennas, 32)[..., :8].permute(0, 3, 2, 1)
        for t in range(rounds):
            h = take_blocks(one.get_state(rounds + t), those.stop)[0, 32:]
            torch.testing.assert_close(h[..., those], expected[t], atol=0.0, rtol=rounding)


@pytest.mark.parametrize("antennas", [1, 3])
def test_fewer_rounds_may_be_kept(antennas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn as many at a time as ever, whatever of them is kept."""
    keys: dict[str, Any] = {"antennas": antennas, "block_symbols": 10}
    whole = make_channel("rayleigh", 40, (0, 1), **keys)
    monkeypatch.setattr(scattering, "MAX_CACHED", 2 * 64 * antennas * 4)
    few = make_channel("rayleigh", 40, (0, 1), **keys)
    for t in (0, 1, 5, 63, 64, 20, 70):
        assert torch.equal(few.get_state(t).h, whole.get_state(t).h)
        assert torch.equal(take_blocks(few.get_state(t), 6), take_blocks(whole.get_state(t), 6))
    kept = few._states._fading._all._first._block
    assert kept is not None
    assert len(kept) <= 4


def test_draws_of_old_batches_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering, "BATCHES_KEPT", 2)
    one, whole = make_channel("rayleigh", 400), make_channel("rayleigh", 400).get_state(3).h
    for device in (5, 40, 399, 70, 5, 390):
        some = torch.tensor([device])
        assert_agree(one.get_state_of_devices(3, some).h[:, some], whole[:, some])
        assert len(one._states._fading._batches) <= 2


def fading(channel: Channel, rounds: int) -> Tensor:
    """[rounds, S, K]."""
    return torch.stack([channel.get_state(round).h[:, :, 0, 0, 0] for round in range(rounds)])


def test_draws_do_not_depend_on_what_else_is_drawn() -> None:
    """The first 10 of 50 devices, a trial alone, a round without those before it, rounds back and
    forth, another channel in between: the same draws."""
    reference = fading(make_channel("rayleigh", 50, [0, 1, 2]), 130)
    torch.manual_seed(5)
    torch.rand(3)
    few = make_channel("rayleigh", 10, [2])
    other = make_channel("rayleigh", 40, [7])
    for round in (129, 0, 64, 63, 65, 1, 129, 0):
        assert_agree(few.get_state(round).h[0, :, 0, 0, 0], reference[round, 2, :10])
        other.get_state(round)


def test_devices_of_different_batches_differ() -> None:
    values = torch.view_as_real(fading(make_channel("rayleigh", 70, [0, 1]), 70)).view(-1, 2)
    assert len(torch.unique(values, dim=0)) == 2 * 70 * 70


def test_points_that_share_seed_and_trial_share_the_channel() -> None:
    values = fading(make_channel("rayleigh", 5, [0, 1, 0], seed=3), 2)
    assert torch.equal(values[:, 0], values[:, 2])
    assert not torch.equal(values[:, 0], values[:, 1])
    assert not torch.equal(values[:, 0], fading(make_channel("rayleigh", 5, [0], seed=4), 2)[:, 0])


def test_a_round_has_blocks_of_its_own() -> None:
    """Block b of a round is no block of another round, whatever the place in its batch."""
    channel = make_channel("rayleigh", 40, range(5), antennas=3, block_symbols=10)
    drawn = torch.stack([take_blocks(channel.get_state(round), 7) for round in range(40)])
    assert len(torch.unique(drawn.movedim(-1, 1).reshape(40 * 7, -1).real, dim=0)) == 280
