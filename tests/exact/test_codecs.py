"""Quantisation by hand.

Mutations that make a test here fail: 2^b levels for 2^b - 1 steps, extremes of the whole stack for
those of a device's block, a constant block divided by zero, side floats of the extremes uncounted,
blocks of the ideal route quantised too.
"""

from __future__ import annotations

import pytest
import torch

from otafl.codecs.config import IdentityConfig, UniformConfig
from otafl.codecs.identity import Identity
from otafl.codecs.uniform import Uniform, quantise
from otafl.contracts import Cohort, Group
from otafl.rng import Streams


def cohort(devices: int) -> Cohort:
    zero, device = torch.zeros(devices, dtype=torch.int64), torch.arange(devices)
    weight = torch.full((devices,), 1.0 / devices)
    return Cohort(zero, device, weight, zero, zero, zero, weight > 0, (devices,), devices)


def test_two_bits_by_hand() -> None:
    """Extremes 0 and 3: levels 0, 1, 2, 3. The second device's own extremes are -1 and 0.5."""
    block = torch.tensor([[0.0, 3.0, 1.4, 1.6], [-1.0, 0.5, -0.7, 0.2]])
    expected = torch.tensor([[0.0, 3.0, 1.0, 2.0], [-1.0, 0.5, -0.5, 0.0]])
    torch.testing.assert_close(quantise(block, 3), expected)


def test_one_bit_keeps_the_extremes_only() -> None:
    block = torch.tensor([[0.1, 0.9, 0.4, 0.6]])
    torch.testing.assert_close(quantise(block, 1), torch.tensor([[0.1, 0.9, 0.1, 0.9]]))


@pytest.mark.parametrize("bits", [1, 2, 8, 16])
def test_idempotent_with_bounded_error(bits: int) -> None:
    block = torch.randn(5, 3, 40, generator=torch.Generator().manual_seed(bits)).double()
    once = quantise(block, 2**bits - 1)
    torch.testing.assert_close(quantise(once, 2**bits - 1), once)
    spread = block.flatten(1).amax(1) - block.flatten(1).amin(1)
    worst = (once - block).abs().flatten(1).amax(1)
    assert (worst <= spread / (2 * (2**bits - 1)) * (1 + 1e-9)).all()
    assert all(len(torch.unique(row)) <= 2**bits for row in once)


def test_a_constant_block_stays_as_it_is() -> None:
    block = torch.full((2, 6), 0.37)
    assert torch.equal(quantise(block, 255), block)


def test_uniform_codec_encodes_each_block_and_leaves_the_ideal_route_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = {name: torch.randn(3, 7, generator=generator) for name in ("a", "b")}
    blocks["b"] = 100.0 * blocks["b"]
    payload = (Group(blocks), Group({"c": blocks["a"]}, route="ideal", reason="a test"))
    codec = Uniform(UniformConfig(bits=4))
    coded, memory = codec.encode(payload, {}, cohort(3), 0, Streams([0], [0]))
    for name, block in blocks.items():
        torch.testing.assert_close(coded[0].blocks[name], quantise(block, 15))
    assert torch.equal(coded[1].blocks["c"], blocks["a"])
    assert memory == {}


def test_bits_by_hand() -> None:
    """12 reals in two blocks: 32 bits each; or 5 bits each and two floats a block."""
    group = Group({"a": torch.zeros(4, 2, 3), "b": torch.zeros(4, 6)})
    assert Identity(IdentityConfig()).bits(group) == 384.0
    assert Uniform(UniformConfig(bits=5)).bits(group) == 12 * 5 + 2 * 64


def test_identity_changes_nothing() -> None:
    payload = (Group({"a": torch.arange(6.0).view(2, 3)}),)
    codec = Identity(IdentityConfig())
    coded, memory = codec.encode(payload, codec.init(payload), cohort(2), 0, Streams([0], [0]))
    assert coded is payload
    assert memory == {}
