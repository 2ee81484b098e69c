"""Uniform quantisation by hand."""

from __future__ import annotations

import pytest
import torch
from support.codec_bench import draw_normal, encode, make_codec, quantise

from otafl.codecs.uniform import Uniform
from otafl.core.contracts import Group

pytestmark = pytest.mark.exact


def test_two_bits_by_hand() -> None:
    """Extremes 0 and 3: levels 0, 1, 2, 3. The second device's own extremes are -1 and 0.5."""
    block = torch.tensor([[0.0, 3.0, 1.4, 1.6], [-1.0, 0.5, -0.7, 0.2]])
    expected = torch.tensor([[0.0, 3.0, 1.0, 2.0], [-1.0, 0.5, -0.5, 0.0]])
    torch.testing.assert_close(quantise(block, 2), expected)


def test_uniform_codec_encodes_each_block_and_leaves_the_ideal_route_alone() -> None:
    blocks = {"a": draw_normal(3, 7), "b": 100.0 * draw_normal(3, 7, seed=1)}
    payload = (Group(blocks), Group({"c": blocks["a"]}, route="ideal", reason="a test"))
    coded, memory = encode(make_codec(Uniform, Uniform.Settings(bits=4)), payload)
    for name, block in blocks.items():
        torch.testing.assert_close(coded[0].tensors[name], quantise(block, 4))
    assert torch.equal(coded[1].tensors["c"], blocks["a"])
    assert memory == {}


def test_uniform_range_is_that_of_what_a_row_knows() -> None:
    """The first row knows 0, 3 and 1.4, of levels 0, 1, 2, 3; the second knows nothing."""
    block = torch.tensor([[0.0, 3.0, 1.4, 99.0, -99.0], [5.0, 6.0, 7.0, 8.0, 9.0]])
    mask = torch.tensor([[1.0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    (coded,), _ = encode(
        make_codec(Uniform, Uniform.Settings(bits=2)), (Group({"a": block}, mask={"a": mask}),)
    )
    assert coded.tensors["a"][0, :3].tolist() == [0.0, 3.0, 1.0]
    assert coded.tensors["a"].isfinite().all()
