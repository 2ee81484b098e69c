"""Codec shared_subset: everybody's reals at the same random places."""

from __future__ import annotations

import pytest
import torch
from contract.small import scenario
from support.codec_bench import acknowledge, draw_normal, encode, make_codec

from otafl import UserError
from otafl.codecs.shared_subset import SharedSubset
from otafl.core.contracts import Group, Received

pytestmark = pytest.mark.exact


def codec_of(**settings: object) -> SharedSubset:
    codec: SharedSubset = make_codec(SharedSubset, SharedSubset.Settings(**settings))
    return codec


def places(codec: SharedSubset, reals: int, round: int = 0) -> list[int]:
    """Where the reals 1 .. P that are sent have been, in order."""
    count = 1.0 + torch.arange(reals, dtype=torch.float64).expand(3, reals)
    (out,), _ = encode(codec, (Group({"w": count}),), round=round)
    rows = out.tensors["sent"]
    assert torch.equal(rows, rows[:1].expand_as(rows))
    return [int(value) - 1 for value in rows[0]]


def test_all_devices_send_the_same_reals_and_nothing_else() -> None:
    codec = codec_of(keep=0.29)
    first, later = places(codec, 50), places(codec, 50, round=1)
    assert len(set(first)) == len(first) == len(later) == 14 != len(set(first) & set(later))
    assert places(codec_of(keep=0.29), 50) == first
    assert places(codec_of(keep=0.29, subset_seed=1), 50) != first
    assert sorted(places(codec_of(keep=1.0), 50)) == list(range(50))


def test_groups_draw_apart_and_what_is_sent_comes_back_in_its_place() -> None:
    x = draw_normal(3, 5, 10)
    codec = codec_of(keep=0.5, error_feedback=False)
    groups = (Group({"a": x[:, :2], "b": x[:, 2:]}), Group({"a": x}))
    (one, two), memory = encode(codec, groups)
    assert memory == {}
    assert not torch.equal(one.tensors["sent"], two.tensors["sent"])
    assert codec.count_bits(one) == 25 * 32
    sums = tuple(group.tensors for group in (one, two))
    mean = codec.decode(Received(sums, (torch.ones(3),) * 2, None, None)).mean
    for blocks, group in zip(mean, groups, strict=True):
        back, old = (torch.cat([b[n].flatten(1) for n in b], 1) for b in (blocks, group.tensors))
        assert ((back != 0).sum(1) == 25).all()
        assert torch.equal(back[back != 0], old[back != 0])
        assert {name: b.shape for name, b in blocks.items()} == {
            name: b.shape for name, b in group.tensors.items()
        }


def test_what_is_not_received_is_sent_later() -> None:
    """Of three devices the first is heard, the second is not, of the third all but one number."""
    codec, x = codec_of(keep=0.2), draw_normal(3, 50)
    (coded,), memory = encode(codec, (Group({"a": x}),))
    heard = torch.ones(3, 10, dtype=torch.bool)
    heard[1], heard[2, 7] = False, False
    after = acknowledge(codec, (coded,), memory, heard)["rest/0"]
    assert (after == 0).sum(1).tolist() == [10, 0, 9]
    assert torch.equal(after[after != 0], x[after != 0])
    (again,), _ = encode(codec, (Group({"a": 0.0 * x}),), {"rest/0": after})
    assert torch.equal(again.tensors["sent"][1], coded.tensors["sent"][1])
    assert not again.tensors["sent"][0].any()


@pytest.mark.parametrize(
    ("devices", "said"),
    [({"protocol": "asynchronous"}, "'asynchronous' does not go"), ({"late": "next"}, "'next'")],
)
def test_updates_that_come_late_are_refused(devices: dict[str, str], said: str) -> None:
    keys = {f"devices.{name}": value for name, value in devices.items()}
    with pytest.raises(UserError, match=said):
        scenario({"codec": "shared_subset", "devices.compute": "phone", **keys})
