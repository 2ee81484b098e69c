"""A number depends only on (seed, trial, purpose, round, device, position).

Words and uniforms, which are integers and their products with powers of two, are compared exactly.
Normals go through log, sqrt, sin and cos, which round otherwise on other processors and in other
places of an array.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from support.rounding import assert_agree
from torch import Tensor

from otafl.core import rng
from otafl.core.rng import Streams, get_kernel

pytestmark = pytest.mark.exact

WORD = (1 << 64) - 1


def mix(z: int) -> int:
    """Variant 13 of the MurmurHash3 finaliser, on plain integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def plain_words(seed: int, trial: int, purpose: str, round: int, device: int | None) -> list[int]:
    """The first three 64-bit words of a stream."""
    name = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    key = seed
    for word in (0, trial, name, round) + (() if device is None else (device + 1,)):
        key = mix((key * 0x9E3779B97F4A7C15 + word) & WORD)
    return [mix(key ^ mix((i * 0x9E3779B97F4A7C15) & WORD)) for i in (1, 2, 3)]


def plain_uniform(words: list[int]) -> list[float]:
    """Six numbers of three words: the upper 23 bits as a signed number, then the lower 23 bits."""
    upper = [(((w >> 41) ^ (1 << 22)) + 0.5) / 2**23 for w in words]
    return upper + [(w % 2**23 + 0.5) / 2**23 for w in words]


@pytest.fixture(params=["tensors", "kernel"])
def generator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tensor operations or the compiled kernel."""
    use_kernel(request.param == "kernel", monkeypatch)
    return str(request.param)


def use_kernel(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled:
        monkeypatch.setattr(rng, "get_kernel", get_kernel)
    else:
        monkeypatch.setattr(rng, "get_kernel", lambda device: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (200, 33), (3, 100_000)])
def test_the_kernel_draws_the_numbers_of_the_tensor_operations(
    shape: tuple[int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last shape has several blocks of columns."""
    key = rng._extend_key(torch.arange(shape[0]), 5)
    drawn = []
    for compiled in (False, True):
        use_kernel(compiled, monkeypatch)
        laws = rng._fill_uniform, rng._fill_words, rng._fill_normal
        drawn.append([law(key, shape[1], dtype) for law in laws])
    *exact, normal = zip(*drawn, strict=True)
    assert all(torch.equal(one, other) for one, other in exact)
    assert_agree(*normal)


@pytest.mark.twin
def test_the_kernel_derives_the_keys_of_the_tensor_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Keys of trials that share a seed, and of pairs whose numbers are not adjacent in memory."""
    streams = Streams([5, 2**62, 5], [0, 1, 0])
    rounds = torch.tensor([0, 3, (7 << 32) + 2])
    pairs = torch.tensor([[0, 9], [2, 0], [1, 123_456]]).unbind(1)
    keys = []
    for compiled in (False, True):
        use_kernel(compiled, monkeypatch)
        keys.append([streams._derive_keys("noise", rounds, one) for one in (None, pairs)])
    assert [key.shape for key in keys[1]] == [(3, 2), (3, 3)]
    assert all(torch.equal(one, other) for one, other in zip(*keys, strict=True))


@pytest.mark.usefixtures("generator")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("seed", "trial", "round", "device"), [(0, 0, 0, 0), (7, 3, 12, 41)])
def test_against_plain_integers(
    seed: int, trial: int, round: int, device: int, dtype: torch.dtype
) -> None:
    streams = Streams([seed], [trial], dtype=dtype)
    pair = torch.tensor([0]), torch.tensor([device])
    own = plain_uniform(plain_words(seed, trial, "fading", round, device))
    shared = plain_uniform(plain_words(seed, trial, "fading", round, None))
    assert streams.draw_device_uniform("fading", round, *pair, (6,))[0].tolist() == own
    assert streams.draw_uniform("fading", round, (6,))[0].tolist() == shared
    normal = streams.draw_device_normal("fading", round, *pair, (2, 3))[0]
    radius = [math.sqrt(-2 * math.log(u)) for u in own[:3]]
    angle = [2 * math.pi * u for u in own[3:]]
    rows = [f(a) * r for f in (math.cos, math.sin) for r, a in zip(radius, angle, strict=True)]
    tolerance = 1e-5 if dtype == torch.float32 else 1e-9
    np.testing.assert_allclose(normal.flatten().numpy(), rows, rtol=tolerance, atol=tolerance)


def test_any_subset_and_order_of_pairs() -> None:
    streams = Streams([1, 1, 2], [0, 1, 0])
    trial, device = torch.arange(3).repeat_interleave(20), torch.arange(20).repeat(3)
    everyone = streams.draw_device_uniform("x", 4, trial, device, (3,))
    some = torch.tensor([59, 0, 21, 20, 7, 7, 40])
    part = streams.draw_device_uniform("x", 4, trial[some], device[some], (3,))
    assert torch.equal(part, everyone[some])
    first, second = torch.tensor([0]), torch.tensor([1])
    alone = Streams([1], [1]).draw_device_uniform("x", 4, first, second, (3,))
    assert torch.equal(alone[0], everyone[21])


@pytest.mark.parametrize("with_devices", [False, True])
def test_drawn_ahead_is_drawn_singly(with_devices: bool) -> None:
    """Rounds read in order are drawn 64 ahead; reading them out of order, again, or from a new
    object (as after a resume) gives the same numbers."""

    def draw(streams: Streams, round: int) -> Tensor:
        if not with_devices:
            return streams.draw_normal("x", round, (5,))
        return streams.draw_device_uniform("x", round, *pairs, (5,))

    pairs = torch.tensor([0, 0, 1]), torch.tensor([4, 9, 4])
    ahead = Streams([1, 2], [0, 0])
    values = [draw(ahead, round).clone() for round in range(150)]
    for round in (149, 0, 63, 64, 65, 64, 64, 128, 3):
        assert_agree(draw(ahead, round), values[round])
        assert_agree(draw(Streams([1, 2], [0, 0]), round), values[round])
    assert not torch.equal(values[0], values[1])


def test_long_draws_are_the_same_in_any_company() -> None:
    """Long draws are made in blocks whose length depends on how many rows there are."""
    stack = Streams([3] * 5, range(5)).draw_uniform("x", 0, (150_001,))
    assert torch.equal(Streams([3], [3]).draw_uniform("x", 0, (150_001,))[0], stack[3])


def test_rows_that_change_between_rounds_are_not_read_ahead() -> None:
    streams, fresh = Streams([1], [0]), Streams([1], [0])
    for round in range(6):
        device = torch.tensor([round % 3, 5])
        trial = torch.zeros_like(device)
        got = streams.draw_device_uniform("x", round, trial, device, (3,))
        single = [
            fresh.draw_device_uniform("x", round, trial[i : i + 1], device[i : i + 1], (3,))[0]
            for i in range(2)
        ]
        assert torch.equal(got, torch.stack(single))


def test_uniform_lies_in_the_open_interval() -> None:
    """23 bits, in the middle of their cell: among four million numbers some are within a few cells
    of either end, none is an end, and no normal number is infinite."""
    streams = Streams([0], [0])
    values = streams.draw_uniform("x", 0, (4_000_000,))
    assert 0 < values.min() < 1e-5
    assert 1 - 1e-5 < values.max() < 1
    cells = values.double() * 2**23 - 0.5
    assert torch.equal(cells, cells.round())
    assert streams.draw_normal("x", 0, (4_000_000,)).abs().max() < math.sqrt(2 * 24 * math.log(2))


def test_points_that_share_seed_and_trial_share_their_numbers() -> None:
    streams = Streams([5, 1, 5, 1], [0, 0, 0, 2])
    values = streams.draw_normal("x", 0, (3,))
    assert_agree(values[0], values[2])
    assert len(torch.unique(values[[0, 1, 3]])) == 9
    assert_agree(values[3], Streams([1], [2]).draw_normal("x", 0, (3,))[0])
    device = torch.tensor([3, 3])
    rows = streams.draw_device_uniform("x", 0, torch.tensor([0, 2]), device, (3,))
    assert torch.equal(rows[0], rows[1])
    seeds = streams.draw_seeds("x", 0)
    assert seeds[0] == seeds[2]
    assert len(set(seeds)) == 3


def test_seeds_and_generators() -> None:
    streams = Streams([1, 1], [0, 1])
    seeds = [seed for index in range(200) for seed in streams.draw_seeds("x", index)]
    assert len(set(seeds)) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert streams.draw_seeds("x", 7)[1] == Streams([1], [1]).draw_seeds("x", 7)[0]
    first = streams.make_generators("partition")[1].random(4)
    again = Streams([1], [1]).make_generators("partition")[0].random(4)
    assert first.tolist() == again.tolist()
    assert first.tolist() != streams.make_generators("partition", 1)[1].random(4).tolist()


def test_draws_leave_the_global_generators_alone() -> None:
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    streams = Streams([1], [0])
    streams.draw_normal("x", 0, (10,))
    streams.make_generators("x")[0].random(3)
    assert torch.equal(before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()  # noqa: NPY002


def test_seeds_and_trials_must_match() -> None:
    with pytest.raises(ValueError, match="2 seeds for 1 trials"):
        Streams([1, 2], [0])


def test_words_have_even_bits_of_the_devices_own() -> None:
    """Each of the 64 bits is set in half of 4,000 words (6 standard deviations of 32), and a
    device's words do not depend on who else draws."""
    streams = Streams([3, 3], [0, 1])
    trial, device = torch.tensor([0, 0, 1]), torch.tensor([0, 4, 4])
    words = streams.draw_device_words("words", 5, trial, device, 4000)
    for bit in range(64):
        share = ((words >> bit) & 1).sum(1)
        assert ((share - 2000).abs() < 190).all()
    alone = streams.draw_device_words("words", 5, trial[1:2], device[1:2], 4000)
    assert torch.equal(alone[0], words[1])
    assert not torch.equal(words[1], words[2])
    of_trials = streams.draw_words("words", 5, 4000)
    assert torch.equal(of_trials[0], Streams([3], [0]).draw_words("words", 5, 4000)[0])
    assert not torch.equal(of_trials[0], of_trials[1])
