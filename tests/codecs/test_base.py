"""What all codecs do: bits, words and back, the ideal route, what they refuse."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from support.codec_bench import draw_normal, encode, make_codec

from otafl.codecs.quantisers import Identity, Qsgd, Uniform
from otafl.codecs.sensing import CompressedSensing, MatrixSensing
from otafl.codecs.subsets import SharedSubset, TopK
from otafl.core.contracts import Group, Received
from otafl.core.errors import UserError

pytestmark = pytest.mark.exact


def test_bits_by_hand() -> None:
    """12 reals in two blocks of 6 (two buckets of 4 each): 32 bits each; 5 bits and two floats a
    block; 5 bits and a float a block, or a bucket; the 3 largest of 12, or 2 of each 6: 32 bits
    and a position of 4 (of 3) bits each, or a map of 12 (of 6) bits where that is less."""
    group = Group({"a": torch.zeros(4, 2, 3), "b": torch.zeros(4, 6)})
    for cls, config, bits in (
        (Identity, Identity.Settings(), 384),
        (Uniform, Uniform.Settings(bits=5), 12 * 5 + 2 * 64),
        (Qsgd, Qsgd.Settings(bits=5), 12 * 5 + 2 * 32),
        (Qsgd, Qsgd.Settings(bits=5, bucket=4), 12 * 5 + 4 * 32),
        (Qsgd, Qsgd.Settings(bits=5, bucket=100), 12 * 5 + 2 * 32),
        (TopK, TopK.Settings(keep=2 / 12), 2 * 32 + 2 * 4),
        (TopK, TopK.Settings(keep=6 / 12), 6 * 32 + 12),
        (TopK, TopK.Settings(keep=1.0), 384),
        (CompressedSensing, CompressedSensing.Settings(), 384),
    ):
        assert make_codec(cls, config).count_bits(group) == bits


def test_the_ideal_route_has_no_memory_and_is_not_coded() -> None:
    block = draw_normal(2, 10)
    payload = (Group({"b": block}, route="ideal", reason="a test"), Group({"a": block}))
    for codec in (
        make_codec(TopK, TopK.Settings()),
        make_codec(CompressedSensing, CompressedSensing.Settings()),
        make_codec(Qsgd, Qsgd.Settings()),
    ):
        coded, memory = encode(codec, payload)
        assert torch.equal(coded[0].tensors["b"], block)
        assert set(memory) <= {"rest/1"}
        mean = tuple({n: b[:1] for n, b in group.tensors.items()} for group in coded)
        one = torch.ones(1)
        back = codec.decode(Received(mean, (one, one), None, None))
        assert torch.equal(back.mean[0]["b"], block[:1])
        assert back.mean[1]["a"].shape == (1, 10)


def test_what_codecs_refuse() -> None:
    masked = (Group({"a": draw_normal(2, 8)}, mask={"a": torch.ones(8)}),)
    with pytest.raises(UserError, match="have only some"):
        encode(make_codec(CompressedSensing, CompressedSensing.Settings()), masked)
    with pytest.raises(ValidationError, match="fewer measurements"):
        CompressedSensing.Settings(keep=0.3, ratio=0.2)


def test_the_weight_that_arrived_in_parts() -> None:
    """Of a payload of which devices were silent in a part: real by real where a codec keeps reals
    apart, the least where it mixes them, and none where it sent nothing."""
    block = draw_normal(2, 4, 6)
    payload = (Group({"a": block}),)
    for codec, name in (
        (make_codec(Qsgd, Qsgd.Settings()), "a"),
        (make_codec(MatrixSensing, MatrixSensing.Settings(rows=2)), "a"),
        (make_codec(CompressedSensing, CompressedSensing.Settings(chunk=8)), "measured"),
        (make_codec(SharedSubset, SharedSubset.Settings(keep=0.5)), "sent"),
    ):
        (coded,), _ = encode(codec, payload)
        shape = coded.tensors[name].shape[1:]
        some = torch.linspace(0.25, 1.0, shape.numel()).view(1, *shape)
        mean = {name: coded.tensors[name][:1]}
        got = Received((mean,), (torch.ones(1),), None, None, coordinate_weight=({name: some},))
        received = codec.decode(got)
        weight = received.delivered_weight(0, "a")
        assert weight.shape == received.mean[0]["a"].shape == (1, 4, 6)
        if isinstance(codec, Qsgd):
            assert torch.equal(weight, some)
        elif isinstance(codec, SharedSubset):
            assert torch.equal(weight[weight > 0], some[0])
            assert not received.mean[0]["a"][weight == 0].any()
        else:
            assert weight.eq(0.25).all()
