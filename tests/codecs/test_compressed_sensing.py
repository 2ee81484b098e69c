"""Random projections of sparse updates, by hand and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.codec_bench import acknowledge, draw_normal, encode, make_codec

from otafl.codecs.sensing import CompressedSensing
from otafl.core.contracts import Group, Received
from otafl.core.rng import Streams

pytestmark = pytest.mark.exact


def sparse_rows(rows: int, reals: int, count: int) -> torch.Tensor:
    """[rows, reals] with the same `count` of non-zero coordinates."""
    out = torch.zeros(rows, reals).double()
    place = torch.randperm(reals, generator=torch.Generator().manual_seed(3))[:count]
    out[:, place] = draw_normal(rows, count, seed=4)
    return out


def test_compressed_sensing_projects_every_cth_real() -> None:
    """50 reals in three chunks of 17 (the last real is padding): chunk c has reals c, c + 3, ..."""
    config = CompressedSensing.Settings(keep=0.2, ratio=0.5, chunk=20)
    codec, x = make_codec(CompressedSensing, config), draw_normal(4, 5, 10)
    (coded,), memory = encode(codec, (Group({"a": x[:, :2], "b": x[:, 2:]}),))
    assert coded.tensors["measured"].shape == (4, 24)
    matrix = (
        Streams([0], [0], dtype=torch.float64).draw_normal("matrix", 0, (8, 17))[0].numpy() / 8**0.5
    )
    for k in range(4):
        row = x[k].flatten().numpy()
        kept = np.where(np.abs(row) >= np.sort(np.abs(row))[-10], row, 0)
        padded = np.append(kept, 0.0)
        hand = np.concatenate([matrix @ padded[c::3] for c in range(3)])
        np.testing.assert_allclose(coded.tensors["measured"][k].numpy(), hand, rtol=1e-10)
        now = acknowledge(codec, (coded,), memory)["rest/0"][k].numpy()
        np.testing.assert_allclose(now, row - kept, atol=1e-15)


def test_compressed_sensing_recovers_the_mean_and_each() -> None:
    """60 of 999 reals in two chunks, half as many measurements: error below 1e-6 of the whole."""
    config = CompressedSensing.Settings(keep=0.06, chunk=500, iterations=100)
    codec, x = make_codec(CompressedSensing, config), sparse_rows(3, 999, 60)
    payload = (Group({"a": x[:, :400].view(3, 20, 20), "b": x[:, 400:]}),)
    (coded,), _ = encode(codec, payload)
    mean = {name: block.mean(0, keepdim=True) for name, block in coded.tensors.items()}
    back = codec.decode(Received((mean,), (torch.ones(1),), (coded.tensors,), None))
    assert back.per_device is not None
    for got, true in ((back.mean[0], x.mean(0, keepdim=True)), (back.per_device[0], x)):
        assert got["a"].shape == (len(true), 20, 20)
        flat = torch.cat([got["a"].flatten(1), got["b"]], 1)
        assert ((flat - true).norm(dim=1) <= 1e-6 * true.norm(dim=1)).all()
