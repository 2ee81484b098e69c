"""Quantisers by hand and against a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.codec_bench import STREAMS, draw_normal, encode, make_codec, make_cohort, quantise

from otafl.codecs.quantisers import Qsgd, Uniform
from otafl.core.contracts import Group

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
