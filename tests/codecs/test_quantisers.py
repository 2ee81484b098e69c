"""Codecs with fewer bits: by hand, against loops, and their votes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.codec_bench import STREAMS, draw_normal, encode, make_codec, make_cohort, quantise

from otafl.codecs.quantisers import Obda, Qsgd, Uniform
from otafl.core.contracts import (
    Cohort,
    Group,
    Received,
)
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.uplink.groups import compute_error_free, make_signal

pytestmark = pytest.mark.exact


def test_two_bits_by_hand() -> None:
    """Extremes 0 and 3: levels 0, 1, 2, 3. The second device's own extremes are -1 and 0.5."""
    block = torch.tensor([[0.0, 3.0, 1.4, 1.6], [-1.0, 0.5, -0.7, 0.2]])
    expected = torch.tensor([[0.0, 3.0, 1.0, 2.0], [-1.0, 0.5, -0.5, 0.0]])
    torch.testing.assert_close(quantise(block, 2), expected)


def test_uniform_range_is_that_of_what_a_row_knows() -> None:
    """The first row knows 0, 3 and 1.4, of levels 0, 1, 2, 3; the second knows nothing."""
    block = torch.tensor([[0.0, 3.0, 1.4, 99.0, -99.0], [5.0, 6.0, 7.0, 8.0, 9.0]])
    mask = torch.tensor([[1.0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    (coded,), _ = encode(
        make_codec(Uniform, Uniform.Settings(bits=2)), (Group({"a": block}, mask={"a": mask}),)
    )
    assert coded.tensors["a"][0, :3].tolist() == [0.0, 3.0, 1.0]
    assert coded.tensors["a"].isfinite().all()


def qsgd_twin(v: np.ndarray, levels: int, order: float, draw: np.ndarray) -> np.ndarray:
    """Section 3.1, a real at a time: l of |v_i| / norm in [l / s, (l + 1) / s]."""
    norm = np.linalg.norm(v, order)
    out = np.zeros_like(v)
    for i, value in enumerate(v):
        share = abs(value) / norm
        below = min(int(share * levels), levels - 1)
        up = share * levels - below
        out[i] = norm * np.sign(value) * (below + (draw[i] > 1 - up)) / levels
    return out


@pytest.mark.parametrize(("bits", "bucket", "norm"), [(2, None, "l2"), (3, 5, "max"), (8, 5, "l2")])
def test_qsgd_against_a_loop(bits: int, bucket: int | None, norm: Any) -> None:
    block, round = draw_normal(4, 3, 4), 6
    codec = make_codec(Qsgd, Qsgd.Settings(bits=bits, bucket=bucket, norm=norm))
    payload = (Group({"a": block, "b": 1e3 * block}),)
    (coded,), _ = encode(codec, payload, round=round)
    who = make_cohort(4)
    for name, scale in (("a", 1.0), ("b", 1e3)):
        draw = STREAMS.draw_device_uniform(f"qsgd/0/{name}", round, who.trial, who.device, (3, 4))
        for k in range(4):
            v, u = scale * block[k].flatten().numpy(), draw[k].flatten().numpy()
            size = bucket or 12
            parts = [slice(i, i + size) for i in range(0, 12, size)]
            order = 2 if norm == "l2" else np.inf
            hand = [qsgd_twin(v[p], 2 ** (bits - 1) - 1, order, u[p]) for p in parts]
            got = coded.tensors[name][k].flatten().numpy()
            np.testing.assert_allclose(got, np.concatenate(hand), rtol=1e-12)


def test_qsgd_keeps_what_is_unknown_out_of_the_norm() -> None:
    """3 and 4 have norm 5; with one level, each is 0 or 5."""
    block, mask = torch.tensor([[3.0, -4.0, 1e6]]).double(), torch.tensor([[1.0, 1.0, 0.0]])
    (coded,), _ = encode(
        make_codec(Qsgd, Qsgd.Settings(bits=2)), (Group({"a": block}, mask={"a": mask}),)
    )
    assert set(coded.tensors["a"].abs().flatten().tolist()) <= {0.0, 5.0}


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
