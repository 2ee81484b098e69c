"""Measurements by Gaussian matrices, and what is recovered of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.codec_bench import STREAMS, acknowledge, draw_normal, encode, make_codec
from support.refusals import assert_refused
from torch import Tensor
from twins import baselines as twin

from otafl.codecs import amp as amp_module
from otafl.codecs.amp import run_amp
from otafl.codecs.sensing import CompressedSensing, MatrixSensing
from otafl.core.contracts import Group, Payload, Received

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
    matrix = STREAMS.draw_normal("matrix", 0, (8, 17))[0].numpy() / 8**0.5
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


PAPER = {"weight0": (784, 256), "weight1": (256, 256), "weight2": (256, 10)}


def made(**keys: int | str | None) -> MatrixSensing:
    codec: MatrixSensing = make_codec(MatrixSensing, MatrixSensing.Settings.model_validate(keys))
    return codec


def encode_matrices(codec: MatrixSensing, payload: Payload) -> Payload:
    coded, memory = encode(codec, payload)
    assert memory == {}
    return coded


def gaussian(name: str, rows: int, side: int) -> Tensor:
    return STREAMS.draw_normal(f"matrix/{name}", 0, (rows, side))[0] / rows**0.5


def test_reals_of_the_paper_s_network() -> None:
    """Fact 18: 1,050 reals a row of A, the last layer's side of 10 and the first's of 784 kept."""
    rows, reals = 8, 8_400
    blocks = {name: torch.zeros(1, *shape).double() for name, shape in PAPER.items()}
    (coded,) = encode_matrices(made(rows=rows), (Group(blocks),))
    assert coded.num_coordinates == reals
    shapes = {name: tuple(block.shape[1:]) for name, block in coded.tensors.items()}
    assert shapes == {"weight0": (784, rows), "weight1": (rows, 256), "weight2": (rows, 10)}


@pytest.mark.parametrize(
    ("side", "measured"),
    [(None, "a second, b first"), (12, "a first, b second, c first"), (9, "c second")],
)
def test_the_side_that_is_measured(side: int | None, measured: str) -> None:
    """Of 12x30, 30x12 and 12x9 the one that is named; of the first two alone, which have both
    sides equally often, the larger."""
    blocks = {"a": draw_normal(2, 12, 30), "b": draw_normal(2, 30, 12)}
    if side is not None:
        blocks["c"] = draw_normal(2, 12, 9)
    (coded,) = encode_matrices(made(rows=5, side=side), (Group(blocks),))
    expected = dict(blocks)
    for text in measured.split(", "):
        name, which = text.split()
        matrix = gaussian(name, 5, side or 30)
        expected[name] = matrix @ blocks[name] if which == "first" else blocks[name] @ matrix.mT
    torch.testing.assert_close(dict(coded.tensors), expected)


def test_sparse_matrices_come_back() -> None:
    """Fact 20: 200x256 of 8 non-zeros, squared error below 1e-8; on the mean and on each, and of a
    convolution's filters [256, 2, 3]. Biases pass as they are."""
    rng = np.random.default_rng(0)
    sparse = np.zeros((3, 20, 256))
    for column in sparse.reshape(-1, 256):
        column[rng.choice(256, 8, replace=False)] = rng.standard_normal(8)
    a = torch.from_numpy(sparse)
    filters = a[:, :6].mT.reshape(3, 256, 2, 3)
    codec = made(rows=200)
    (coded,) = encode_matrices(
        codec, (Group({"a": a, "bias": draw_normal(3, 7), "filters": filters}),)
    )
    assert coded.num_coordinates == 20 * 200 + 7 + 200 * 6
    # columns of the mean of three have up to 24 non-zeros, which 200 rows recover too
    mean = {name: block.mean(0, keepdim=True) for name, block in coded.tensors.items()}
    back = codec.decode(Received((mean,), (torch.ones(1),), (coded.tensors,), None))
    assert back.per_device is not None
    for name, block in (("a", a), ("filters", filters)):
        for ours, true in (
            (back.per_device[0][name], block),
            (back.mean[0][name], block.mean(0, keepdim=True)),
        ):
            assert ours.shape == true.shape
            assert float((ours - true).square().sum() / true.square().sum()) < 1e-8
    assert torch.equal(back.mean[0]["bias"], mean["bias"])


def test_equals_the_looped_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are recovered, that diverge, and in between, in small batches."""
    monkeypatch.setattr(amp_module, "_REALS_AT_ONCE", 60 * 7)
    rng = np.random.default_rng(3)
    for rows in (6, 20, 40):
        matrix = rng.standard_normal((rows, 60)) / np.sqrt(rows)
        x = np.zeros((18, 60))
        for count, column in enumerate(x, 1):
            column[rng.choice(60, count, replace=False)] = rng.standard_normal(count)
        y = x @ matrix.T + 0.01 * rng.standard_normal((18, rows))
        ours = run_amp(torch.from_numpy(y), torch.from_numpy(matrix), 25, 1.3).numpy()
        theirs = np.stack([twin.amp(column, matrix, 25, 1.3) for column in y])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)


def test_what_it_refuses() -> None:
    flat, matrix = Group({"a": draw_normal(2, 12)}), draw_normal(2, 12, 9)
    masked, plain = Group({"a": matrix}, mask={"a": torch.ones_like(matrix)}), Group({"a": matrix})
    cases: list[tuple[Any, str]] = [
        ((flat, {}), "measures matrices, and the algorithm sends none"),
        ((masked, {}), "have only some of them"),
        ((plain, {"side": 10}), "no matrix has a side of 10; use one of 9, 12"),
        ((plain, {"rows": 12}), "12 measurements of 12 coordinates compress"),
    ]
    assert_refused(lambda case: encode_matrices(made(**case[1]), (case[0],)), cases)
