"""Codec random_subset: FedAvg with so many parameters of a random choice."""

from __future__ import annotations

import math

import pytest
import torch
from twins.setting import everyone

from otafl.codecs.random_subset import RandomSubset
from otafl.core.contracts import Cohort, Group, Payload
from otafl.core.rng import Streams

pytestmark = pytest.mark.exact


def sent(
    config: RandomSubset.Settings, payload: Payload, cohort: Cohort, round: int = 0
) -> Payload:
    streams = Streams([3, 3], [0, 1])
    codec = RandomSubset(config, {}, streams)
    assert codec.init(payload) == {}
    out, memory = codec.encode(payload, {}, cohort, round, streams)
    assert memory == {}
    return out


def payload_of(rows: int) -> Group:
    return Group({"w": 1.0 + torch.rand(rows, 20, 10), "b": 1.0 + torch.rand(rows, 50)})


COHORT = everyone(torch.full((2, 4), 0.25))


def test_an_exact_number_of_values_and_zeros() -> None:
    group = payload_of(8)
    (out,) = sent(RandomSubset.Settings(keep=0.3), (group,), COHORT)
    assert out.mask is None
    flat, old = (torch.cat([g.tensors["w"].flatten(1), g.tensors["b"]], 1) for g in (out, group))
    some = flat != 0
    assert some.sum(1).tolist() == [75] * 8
    assert torch.equal(flat, old * some)
    assert len({tuple(row.tolist()) for row in some}) == 8
    (other,) = sent(RandomSubset.Settings(keep=0.3), (group,), COHORT, round=1)
    assert not torch.equal(other.tensors["w"] != 0, out.tensors["w"] != 0)
    (again,) = sent(RandomSubset.Settings(keep=0.3), (group,), COHORT)
    assert torch.equal(again.tensors["w"], out.tensors["w"])


def test_keep_leaves_what_is_not_sent_to_those_who_send_it() -> None:
    group = payload_of(8)
    known = torch.ones(8, 20, 10)
    known[:, :5] = 0.0
    masked = Group(group.tensors, mask={"w": known})
    (out,) = sent(RandomSubset.Settings(keep=0.5, fill="keep"), (masked,), COHORT)
    assert out.mask is not None
    for name, block in out.tensors.items():
        assert torch.equal(out.mask[name] != 0, block != 0)
    assert not out.mask["w"][:, :5].any()
    assert 0.3 < out.mask["w"][:, 5:].mean() < 0.7
    (zero,) = sent(RandomSubset.Settings(keep=0.5), (masked,), COHORT)
    assert torch.equal(zero.tensors["w"], out.tensors["w"])


def test_bits_in_tdpfeds_proportion() -> None:
    """Of the DNN's 79,510 parameters; positions cost a map of the parameters, shorter than a list
    of 17 bits each."""
    group, rate, values = Group({"model": torch.zeros(1, 79_510)}), 1.5, 53_007
    for positions, extra in ((False, 0), (True, 79_510)):
        config = RandomSubset.Settings(keep=1 / rate, positions=positions)
        codec = RandomSubset(config, {}, Streams([1], [0]))
        assert codec.count_bits(group) == 32 * values + extra
    few = RandomSubset(RandomSubset.Settings(keep=0.001), {}, Streams([1], [0]))
    assert few.count_bits(group) == 80 * (32 + math.ceil(math.log2(79_510)))
    whole = RandomSubset(RandomSubset.Settings(keep=1.0), {}, Streams([1], [0]))
    assert whole.count_bits(group) == 32 * 79_510
