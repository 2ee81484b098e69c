"""One-bit aggregation: votes by hand, their ties, and their error over the air."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import torch
from scipy import stats
from torch import Tensor

from otafl.codecs.obda import Obda
from otafl.core.contracts import (
    ChannelState,
    Coefficients,
    Cohort,
    Group,
    Link,
    LinkBudget,
    Received,
)
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.uplink.base import Parts, deliver
from otafl.uplink.coherent.over_the_air import OverTheAir
from otafl.uplink.groups import compute_error_free, make_signal
from otafl.uplink.impairments.impairments import Impairments
from otafl.uplink.transmission import Alignment

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


def test_weighted_votes() -> None:
    """Device 0 has more than the others together: the vote is its signs. Unweighted, its tie."""
    group, who = Group({"a": BLOCK.repeat(2, 1)}), cohort(4, [10.0, 1, 1, 1])
    _, received = delivered(codec(vote="weighted"), group, who)
    assert received.mean[0]["a"].tolist() == [[0.5, -0.5, 0.5, -0.5], [2, -2, 2, -2]]
    _, received = delivered(codec(), group, who)
    assert received.mean[0]["a"][0].tolist() == [0.5, 0.5, 0.5, -0.5]


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


class FullPower:
    """Known phase, h = 1: p = sqrt(P / m), eta = 1 / 4."""

    constraint = "peak"
    may_be_silent = False
    needs_variation = False

    def prepare(self, *_: Any) -> None: ...

    def compute_coefficients(self, state: Any, link: Link) -> tuple[Any, Coefficients]:
        p = (link.budget[:, None] / link.symbol_power).sqrt() * torch.ones_like(link.h)
        eta = torch.full_like(link.symbol_power[..., 0], 0.25)
        return state, Coefficients(p, eta, link.transmit_mask[:, None].expand_as(link.symbol_power))


class OneAntenna:
    scale = "policy"

    def combine(self, h: Tensor, sends: Tensor, budget: Tensor) -> Tensor:
        return torch.ones_like(h[:, :, 0])


class Known:
    num_pilot_symbols: ClassVar[int] = 0
    variance = None

    def estimate(self, h: Tensor, gain: Tensor, round: int) -> Tensor:
        return h


def over_the_air(power: float, devices: int, quadrature: bool) -> OverTheAir:
    streams = Streams([3], [0], dtype=torch.float64)
    one, ones = torch.ones(1).double(), torch.ones(1, devices).double()
    impairments = Impairments([Impairments.Settings()], None, streams)
    aligned: Any = Known(), OneAntenna(), FullPower(), None, {}, impairments
    budget = LinkBudget(power * ones, ones, one, one, one > 0)
    parts = Parts(budget, Alignment(*aligned), codec(), streams, {})
    return OverTheAir(OverTheAir.Settings(quadrature=quadrature), parts)


@pytest.mark.parametrize(("power_db", "quadrature"), [(-10.0, True), (3.0, False)])
def test_error_of_the_vote_over_the_air(power_db: float, quadrature: bool) -> None:
    """Sums v = +-1, +-3, +-5 of five devices' signs at power P and N = 1/2: wrong with probability
    Q(|v| sqrt(2 P)), or Q(|v| sqrt(P)) where two signs share a symbol's power. 40,000 signs, each
    kind by its own binomial law, level 1e-4 in all over 2 cases of 3 kinds."""
    power, reals = 10 ** (power_db / 10), 40_000
    generator = torch.Generator().manual_seed(round(power_db))
    x = torch.randn(5, reals, generator=generator, dtype=torch.float64)
    who = cohort(5, trials=1)
    made = codec((0.5,))
    payload, _ = made.encode((Group({"a": x}),), {}, who, 0, Streams([0], [0]))
    h, gain = torch.ones(1, 5, 1, 1, 1, dtype=torch.complex128), torch.ones(1, 5).double()
    link = over_the_air(power, 5, quadrature)
    received, report = deliver(link, payload, who, ChannelState(h, gain), 0)
    vote = made.decode(received).mean[0]["a"][0]
    assert set(vote.abs().tolist()) == {0.5}
    assert report.symbols[0] == (reals / 2 if quadrature else reals)
    torch.testing.assert_close(report.power, torch.full_like(report.power, power))
    total = x.sign().sum(0)
    wrong = vote.sign() != total.sign()
    for size in (1, 3, 5):
        here = total.abs() == size
        law = stats.norm.sf(size * math.sqrt(power * (1 if quadrature else 2)))
        low, high = stats.binom.ppf([5e-5 / 6, 1 - 5e-5 / 6], int(here.sum()), law)
        assert low <= int(wrong[here].sum()) <= high
