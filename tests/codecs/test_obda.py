"""One-bit aggregation: votes by hand, their ties, and their error over the air."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from otafl.codecs.quantisers import Obda
from otafl.core.contracts import (
    Cohort,
    Group,
    Received,
)
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.uplink.groups import compute_error_free, make_signal

pytestmark = pytest.mark.exact

STEPS = (0.5, 2.0)


def codec(steps: tuple[float, ...] = STEPS, **options: Any) -> Obda:
    """Of trials with steps of their own."""
    streams = Streams([0] * len(steps), range(len(steps)), dtype=torch.float64)
    return Obda(Obda.Settings(**options), {"step": torch.tensor(steps).double()}, streams)


def cohort(devices: int, weight: list[float] | None = None, trials: int = 2) -> Cohort:
    trial = torch.arange(trials).repeat_interleave(devices)
    device = torch.arange(devices).repeat(trials)
    w = torch.ones(devices) if weight is None else torch.tensor(weight)
    return Cohort.create(trial, device, w.double().repeat(trials), (devices,) * trials, devices)


def delivered(made: Obda, group: Group, who: Cohort) -> tuple[Group, Received]:
    """Encoded, summed without error, decoded."""
    (coded,), _ = made.encode((group,), {}, who, 0, Streams([0, 0], [0, 1]))
    sent = make_signal(coded, who)
    mean, count = compute_error_free(sent)
    return coded, made.decode(Received((mean,), (count,), (coded.tensors,), None))


BLOCK = torch.tensor([[3.0, -1, 0, -2], [1, -9, -1, -2], [-1, 0.1, -2, 1], [-8, 5, 0, -4]]).double()
"""Signs + - + -, + - - -, - + - +, - + + -: three ties, and a majority against."""


def test_vote_by_hand() -> None:
    coded, received = delivered(codec(), Group({"a": BLOCK.repeat(2, 1)}), cohort(4))
    assert coded.tensors["a"][0].tolist() == [0.5, -0.5, 0.5, -0.5]
    assert coded.tensors["a"][5].tolist() == [2, -2, -2, -2]
    assert received.mean[0]["a"].tolist() == [[0.5, 0.5, 0.5, -0.5], [2, 2, 2, -2]]
    assert received.group_weight[0].tolist() == [1, 1]
    assert received.per_device is not None
    assert torch.equal(received.per_device[0]["a"], coded.tensors["a"])


def test_ties_are_exact_whatever_the_weights() -> None:
    """Weights of 1/10 are not exact in binary, and their signed sum would be a small number."""
    block = torch.tensor([1.0, -1] * 5)[:, None].expand(-1, 200).contiguous()
    who = cohort(10, [0.1] * 10)
    _, received = delivered(codec(), Group({"a": block.repeat(2, 1)}), who)
    assert received.mean[0]["a"][0].eq(0.5).all()


def test_nobodys_coordinate_gets_no_step() -> None:
    mask = torch.tensor([[1.0, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]).repeat(2, 1)
    group = Group({"a": BLOCK.repeat(2, 1)}, mask={"a": mask})
    _, received = delivered(codec(), group, cohort(4))
    assert received.mean[0]["a"].tolist() == [[0.5, -0.5, 0.5, 0], [2, -2, 2, 0]]
    count = received.group_weight[0]
    assert isinstance(count, dict)
    assert count["a"][0].tolist() == [1, 0.5, 0.25, 0]


def test_one_bit_a_real() -> None:
    assert codec().count_bits(Group({"a": torch.zeros(4, 2, 3), "b": torch.zeros(4, 6)})) == 12


def test_what_it_refuses() -> None:
    block = BLOCK.repeat(2, 1)
    with pytest.raises(UserError, match="needs the sum"):
        delivered(codec(), Group({"a": block}, weighting="none"), cohort(4))
    with pytest.raises(UserError, match="several rows of a device"):
        delivered(codec(), Group({"a": block}, row_index=torch.tensor([0] * 8)), cohort(4))
