"""Codec count_sketch: sums of coordinates in buckets that all devices share."""

from __future__ import annotations

import pytest
import torch
from contract.small import scenario
from support.codec_bench import draw_normal, encode, make_codec
from support.refusals import assert_refused

from otafl import UserError
from otafl.codecs.sketch import CountSketch
from otafl.core.contracts import Group, Received

pytestmark = pytest.mark.exact


def codec_of(**settings: object) -> CountSketch:
    codec: CountSketch = make_codec(CountSketch, CountSketch.Settings(**settings))
    return codec


def hashes(codec: CountSketch, size: int, round: int = 0, index: int = 0) -> torch.Tensor:
    """Where coordinates go, with their signs: the sketches of unit vectors, [P, rows * w]."""
    groups = tuple(Group({"x": torch.eye(size, dtype=torch.float64)}) for _ in range(index + 1))
    return encode(codec, groups, round=round)[0][index].tensors["sketch"]


def decode(codec: CountSketch, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    rows = len(tensors["sketch"])
    return codec.decode(Received((tensors,), (torch.ones(rows),), None, None)).mean[0]


def test_a_coordinate_is_in_one_bucket_with_a_sign() -> None:
    table = hashes(codec_of(ratio=0.5), 60)
    assert table.shape == (60, 30)
    assert (table != 0).sum(1).eq(1).all()
    assert table.abs().sum(1).eq(1).all()
    assert (table > 0).any()
    assert (table < 0).any()


def test_hashes_depend_on_round_and_group_only() -> None:
    codec = codec_of(ratio=0.5)
    first = hashes(codec, 20)
    assert torch.equal(hashes(codec_of(ratio=0.5), 20), first)
    later = hashes(codec, 20, round=1)
    assert not torch.equal(later.abs(), first.abs())  # buckets
    assert not torch.equal(later.sum(1), first.sum(1))  # signs
    assert not torch.equal(hashes(codec, 20, index=1), first)


def test_estimates_by_hand() -> None:
    codec = codec_of(ratio=0.6)
    x = draw_normal(2, 20)
    table = hashes(codec, 20)
    (coded,), memory = encode(codec, (Group({"a": x[:, :4], "b": x[:, 4:].view(2, 4, 4)}),))
    assert memory == {}
    sketch = coded.tensors["sketch"]
    torch.testing.assert_close(sketch, x @ table)
    found = decode(codec, coded.tensors)
    assert found["b"].shape == (2, 4, 4)
    both = torch.cat([found["a"], found["b"].flatten(1)], 1)
    torch.testing.assert_close(both, sketch @ table.mT)
    assert codec.count_bits(coded) == 32 * sketch.shape[1]


def test_a_coordinate_is_delivered_as_far_as_its_bucket_is() -> None:
    codec = codec_of(ratio=0.6)
    table = hashes(codec, 20).abs()  # [20, 12]
    weight = torch.rand(2, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocks = {"sketch": weight}
    received = Received((blocks,), (torch.ones(2),), None, None, coordinate_weight=(blocks,))
    found = codec.decode(received).coordinate_weight
    assert found is not None
    torch.testing.assert_close(found[0]["x"], weight @ table.mT)


def test_parts_of_a_model_are_refused() -> None:
    mask = {"x": torch.ones(1, 10)}
    with pytest.raises(UserError, match="'count_sketch' adds coordinates of all devices up"):
        encode(codec_of(), (Group({"x": draw_normal(1, 10)}, mask=mask),))


def test_what_does_not_go_with_sketches() -> None:
    cases = [
        ({"devices.protocol": "asynchronous", "devices.compute": "phone"}, "whose hash is that"),
        ({"devices.late": "next", "devices.compute": "phone"}, "use late: drop"),
        ({"transport": "fsk_majority_vote"}, "gives the server a vote"),
    ]
    refused = [(({"codec": "count_sketch", **keys},), said) for keys, said in cases]
    assert_refused(lambda case: scenario(case[0]), refused)
