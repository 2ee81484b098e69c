"""Codecs by hand.

Mutations that make a test here fail: 2^b levels for 2^b - 1 steps, extremes of the whole stack for
those of a device's block, a constant block divided by zero, side floats of the extremes uncounted,
blocks of the ideal route quantised too, extremes that count what a row does not know; s = 2^(b-1)
levels in QSGD, always rounded down, one draw for all devices, the sign lost, the norm of the whole
stack, norms of buckets uncounted; top-k by value for by magnitude, one too many kept, chosen among
all blocks for block by block, the residual forgotten, added twice or of the wrong device, the
memory of unknown coordinates wiped, the list of positions where a map is shorter; chunks of
neighbours for every C-th real, a matrix of variance 1, the padding left in, the ideal route decoded
too, devices told apart left undecoded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from otafl.codecs.compressed_sensing import CompressedSensing
from otafl.codecs.config import (
    CompressedSensingConfig,
    IdentityConfig,
    QsgdConfig,
    TopKConfig,
    UniformConfig,
)
from otafl.codecs.identity import Identity
from otafl.codecs.qsgd import Qsgd
from otafl.codecs.topk import TopK
from otafl.codecs.uniform import Uniform, quantise
from otafl.core.contracts import Blocks, Cohort, Group, Payload, Received, WordCodec
from otafl.core.errors import UserError
from otafl.core.rng import Streams

STREAMS = Streams([0], [0], dtype=torch.float64)


def cohort(devices: int) -> Cohort:
    zero, device = torch.zeros(devices, dtype=torch.int64), torch.arange(devices)
    weight = torch.full((devices,), 1.0 / devices)
    return Cohort(zero, device, weight, zero, zero, zero, weight > 0, (devices,), devices)


def made(cls: Any, config: Any, streams: Streams = STREAMS) -> Any:
    return cls(config, {}, streams)


def encode(codec: Any, payload: Payload, memory: Blocks | None = None, round: int = 0) -> Any:
    """Of as many devices as the first group has rows, or names in `rows`."""
    first = payload[0]
    rows = len(next(iter(first.blocks.values())))
    if first.rows is not None:
        rows = int(first.rows.max()) + 1
    own = codec.init(payload) if memory is None else memory
    return codec.encode(payload, own, cohort(rows), round, STREAMS)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_bits_by_hand() -> None:
    """Extremes 0 and 3: levels 0, 1, 2, 3. The second device's own extremes are -1 and 0.5."""
    block = torch.tensor([[0.0, 3.0, 1.4, 1.6], [-1.0, 0.5, -0.7, 0.2]])
    expected = torch.tensor([[0.0, 3.0, 1.0, 2.0], [-1.0, 0.5, -0.5, 0.0]])
    torch.testing.assert_close(quantise(block, 3), expected)


def test_one_bit_keeps_the_extremes_only() -> None:
    block = torch.tensor([[0.1, 0.9, 0.4, 0.6]])
    torch.testing.assert_close(quantise(block, 1), torch.tensor([[0.1, 0.9, 0.1, 0.9]]))


@pytest.mark.parametrize("bits", [1, 2, 8, 16])
def test_idempotent_with_bounded_error(bits: int) -> None:
    block = torch.randn(5, 3, 40, generator=torch.Generator().manual_seed(bits)).double()
    once = quantise(block, 2**bits - 1)
    torch.testing.assert_close(quantise(once, 2**bits - 1), once)
    spread = block.flatten(1).amax(1) - block.flatten(1).amin(1)
    worst = (once - block).abs().flatten(1).amax(1)
    assert (worst <= spread / (2 * (2**bits - 1)) * (1 + 1e-9)).all()
    assert all(len(torch.unique(row)) <= 2**bits for row in once)


def test_a_constant_block_stays_as_it_is() -> None:
    block = torch.full((2, 6), 0.37)
    assert torch.equal(quantise(block, 255), block)


def test_uniform_codec_encodes_each_block_and_leaves_the_ideal_route_alone() -> None:
    blocks = {"a": normal(3, 7), "b": 100.0 * normal(3, 7, seed=1)}
    payload = (Group(blocks), Group({"c": blocks["a"]}, route="ideal", reason="a test"))
    coded, memory = encode(made(Uniform, UniformConfig(bits=4)), payload)
    for name, block in blocks.items():
        torch.testing.assert_close(coded[0].blocks[name], quantise(block, 15))
    assert torch.equal(coded[1].blocks["c"], blocks["a"])
    assert memory == {}


def test_uniform_range_is_that_of_what_a_row_knows() -> None:
    """The first row knows 0, 3 and 1.4, of levels 0, 1, 2, 3; the second knows nothing."""
    block = torch.tensor([[0.0, 3.0, 1.4, 99.0, -99.0], [5.0, 6.0, 7.0, 8.0, 9.0]])
    mask = torch.tensor([[1.0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    (coded,), _ = encode(
        made(Uniform, UniformConfig(bits=2)), (Group({"a": block}, mask={"a": mask}),)
    )
    assert coded.blocks["a"][0, :3].tolist() == [0.0, 3.0, 1.0]
    assert coded.blocks["a"].isfinite().all()


def test_bits_by_hand() -> None:
    """12 reals in two blocks of 6 (two buckets of 4 each): 32 bits each; 5 bits and two floats a
    block; 5 bits and a float a block, or a bucket; the 3 largest of 12, or 2 of each 6: 32 bits
    and a position of 4 (of 3) bits each, or a map of 12 (of 6) bits where that is less."""
    group = Group({"a": torch.zeros(4, 2, 3), "b": torch.zeros(4, 6)})
    for cls, config, bits in (
        (Identity, IdentityConfig(), 384),
        (Uniform, UniformConfig(bits=5), 12 * 5 + 2 * 64),
        (Qsgd, QsgdConfig(bits=5), 12 * 5 + 2 * 32),
        (Qsgd, QsgdConfig(bits=5, bucket=4), 12 * 5 + 4 * 32),
        (Qsgd, QsgdConfig(bits=5, bucket=100), 12 * 5 + 2 * 32),
        (TopK, TopKConfig(keep=2 / 12), 2 * 32 + 2 * 4),
        (TopK, TopKConfig(keep=6 / 12), 6 * 32 + 12),
        (TopK, TopKConfig(keep=1 / 6, scope="block"), 2 * (32 + 3)),
        (TopK, TopKConfig(keep=1.0), 384),
        (CompressedSensing, CompressedSensingConfig(), 384),
    ):
        assert made(cls, config).bits(group) == bits


def test_identity_changes_nothing() -> None:
    payload = (Group({"a": torch.arange(6.0).view(2, 3)}),)
    coded, memory = encode(made(Identity, IdentityConfig()), payload)
    assert coded is payload
    assert memory == {}


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


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("bucket", [None, 5])
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_qsgd_against_a_loop(bits: int, bucket: int | None, norm: Any) -> None:
    block, round = normal(4, 3, 4), 6
    codec = made(Qsgd, QsgdConfig(bits=bits, bucket=bucket, norm=norm))
    payload = (Group({"a": block, "b": 1e3 * block}),)
    (coded,), _ = encode(codec, payload, round=round)
    who = cohort(4)
    for name, scale in (("a", 1.0), ("b", 1e3)):
        draw = STREAMS.device_uniform(f"qsgd/0/{name}", round, who.trial, who.device, (3, 4))
        for k in range(4):
            v, u = scale * block[k].flatten().numpy(), draw[k].flatten().numpy()
            size = bucket or 12
            parts = [slice(i, i + size) for i in range(0, 12, size)]
            order = 2 if norm == "l2" else np.inf
            hand = [qsgd_twin(v[p], 2 ** (bits - 1) - 1, order, u[p]) for p in parts]
            got = coded.blocks[name][k].flatten().numpy()
            np.testing.assert_allclose(got, np.concatenate(hand), rtol=1e-12)


def test_qsgd_of_nothing_is_nothing() -> None:
    (coded,), _ = encode(made(Qsgd, QsgdConfig()), (Group({"a": torch.zeros(2, 5).double()}),))
    assert coded.blocks["a"].eq(0).all()


def test_qsgd_keeps_what_is_unknown_out_of_the_norm() -> None:
    """3 and 4 have norm 5; with one level, each is 0 or 5."""
    block, mask = torch.tensor([[3.0, -4.0, 1e6]]).double(), torch.tensor([[1.0, 1.0, 0.0]])
    (coded,), _ = encode(made(Qsgd, QsgdConfig(bits=2)), (Group({"a": block}, mask={"a": mask}),))
    assert set(coded.blocks["a"].abs().flatten().tolist()) <= {0.0, 5.0}


@pytest.mark.parametrize(
    "codec",
    [
        made(Uniform, UniformConfig(bits=1)),
        made(Uniform, UniformConfig(bits=6)),
        made(Qsgd, QsgdConfig(bits=2, norm="max")),
        made(Qsgd, QsgdConfig(bits=6, norm="max", bucket=4)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_words_and_back(codec: Any, dtype: torch.dtype) -> None:
    """Words tell the quantised values, are in range, and one bit off is one level off."""
    assert isinstance(codec, WordCodec)
    assert codec.word_bits is not None
    block = normal(5, 2, 9).to(dtype)
    block[2] = 0.25
    payload = (Group({"a": block, "b": 10.0 * block[:, 0]}),)
    (coded,), _ = encode(codec, payload)
    words = codec.words(coded)
    assert words.shape == (5, 27)
    assert words.min() >= 0
    assert words.max() < 2**codec.word_bits
    for name, value in codec.values(coded, words).items():
        torch.testing.assert_close(value, coded.blocks[name])
    words[1, 3] ^= 1
    off = codec.values(coded, words)["a"] - coded.blocks["a"]
    spread = block[1].amax() - block[1].amin()
    step = spread / (2**codec.word_bits - 1)
    if isinstance(codec, Qsgd):
        norm = block[1].flatten()[:4].abs().amax() if codec.config.bucket else block[1].abs().amax()
        step = norm / (2 ** (codec.word_bits - 1) - 1)
    torch.testing.assert_close(off[1].flatten()[3].abs(), step, rtol=1e-4, atol=0)
    off[1].flatten()[3] = 0
    assert off.abs().amax() < 1e-5 * step


def test_qsgd_with_the_euclidean_norm_makes_no_words() -> None:
    assert made(Qsgd, QsgdConfig()).word_bits is None


def test_topk_with_memory_by_hand() -> None:
    """Two of five. Round 0 leaves (0, 1, 0, -2, 0); round 1 sends 3 + 1 and -1 - 2."""
    codec = made(TopK, TopKConfig(keep=0.4))
    first, second = torch.tensor([[-5.0, 1, 3, -2, 0]]), torch.tensor([[1.0, 3, 1, -1, 0]])
    (sent,), memory = encode(codec, (Group({"a": first}),))
    assert sent.blocks["a"].tolist() == [[-5, 0, 3, 0, 0]]
    assert memory["rest/0"].tolist() == [[0, 1, 0, -2, 0]]
    (sent,), memory = encode(codec, (Group({"a": second}),), memory)
    assert sent.blocks["a"].tolist() == [[0, 4, 0, -3, 0]]
    assert memory["rest/0"].tolist() == [[1, 0, 1, 0, 0]]


@pytest.mark.parametrize("scope", ["payload", "block"])
def test_topk_against_sorting(scope: Any) -> None:
    blocks = {"a": normal(3, 4, 5), "b": 10.0 * normal(3, 10, seed=1)}
    kept = blocks | {}
    codec = made(TopK, TopKConfig(keep=0.25, scope=scope, error_feedback=False))
    (sent,), memory = encode(codec, (Group(blocks),))
    assert memory == {}
    for k in range(3):
        rows = {name: block[k].flatten().numpy() for name, block in kept.items()}
        if scope == "payload":
            every = np.concatenate(list(rows.values()))
            least = dict.fromkeys(rows, np.sort(np.abs(every))[-8])  # round(30 / 4) = 8
        else:
            least = {"a": np.sort(np.abs(rows["a"]))[-5], "b": np.sort(np.abs(rows["b"]))[-2]}
        for name, row in rows.items():
            hand = np.where(np.abs(row) >= least[name], row, 0)
            np.testing.assert_array_equal(sent.blocks[name][k].flatten().numpy(), hand)


def test_nothing_is_lost_with_error_feedback() -> None:
    """What was sent so far and what is remembered is all there was."""
    codec, memory = made(TopK, TopKConfig(keep=0.2)), None
    total, sent_so_far = torch.zeros(3, 10).double(), torch.zeros(3, 10).double()
    for round in range(20):
        x = normal(3, 10, seed=round)
        total += x
        (sent,), memory = encode(codec, (Group({"a": x}),), memory, round)
        sent_so_far += sent.blocks["a"]
        assert (sent.blocks["a"] != 0).sum(1).tolist() == [2, 2, 2]
    torch.testing.assert_close(sent_so_far + memory["rest/0"], total)


def test_memory_of_explicit_rows_and_of_unknown_coordinates() -> None:
    """Rows 2 and 0 of three devices; the second knows only coordinates 1 and 2. Device 1 keeps its
    memory, as does device 0 for the coordinate that it does not know."""
    codec = made(TopK, TopKConfig(keep=1 / 3))
    block = torch.tensor([[1.0, 2, -3], [9, 1, 2]])
    mask = torch.tensor([[1.0, 1, 1], [0, 1, 1]])
    group = Group({"a": block}, rows=torch.tensor([2, 0]), mask={"a": mask})
    before = torch.tensor([[10.0, 0, -4], [7, 7, 7], [0, 0, 0]])
    (sent,), memory = encode(codec, (group,), {"rest/0": before})
    assert sent.blocks["a"].tolist() == [[0, 0, -3], [0, 0, -2]]
    assert memory["rest/0"].tolist() == [[10, 1, 0], [7, 7, 7], [1, 2, 0]]
    assert before.tolist() == [[10, 0, -4], [7, 7, 7], [0, 0, 0]]


def test_the_ideal_route_has_no_memory_and_is_not_coded() -> None:
    block = normal(2, 10)
    payload = (Group({"b": block}, route="ideal", reason="a test"), Group({"a": block}))
    for codec in (
        made(TopK, TopKConfig()),
        made(CompressedSensing, CompressedSensingConfig()),
        made(Qsgd, QsgdConfig()),
    ):
        coded, memory = encode(codec, payload)
        assert torch.equal(coded[0].blocks["b"], block)
        assert set(memory) <= {"rest/1"}
        mean = tuple({n: b[:1] for n, b in group.blocks.items()} for group in coded)
        one = torch.ones(1)
        back = codec.decode(Received(mean, (one, one), None, None))
        assert torch.equal(back.mean[0]["b"], block[:1])
        assert back.mean[1]["a"].shape == (1, 10)


def sparse_rows(rows: int, reals: int, count: int) -> torch.Tensor:
    """[rows, reals] with the same `count` of non-zero coordinates."""
    out = torch.zeros(rows, reals).double()
    place = torch.randperm(reals, generator=torch.Generator().manual_seed(3))[:count]
    out[:, place] = normal(rows, count, seed=4)
    return out


def test_compressed_sensing_projects_every_cth_real() -> None:
    """50 reals in three chunks of 17 (the last real is padding): chunk c has reals c, c + 3, ..."""
    config = CompressedSensingConfig(keep=0.2, ratio=0.5, chunk=20, matrix_seed=9)
    codec, x = made(CompressedSensing, config), normal(4, 5, 10)
    (coded,), memory = encode(codec, (Group({"a": x[:, :2], "b": x[:, 2:]}),))
    assert coded.blocks["measured"].shape == (4, 24)
    matrix = Streams([9], [0], dtype=torch.float64).normal("matrix", 0, (8, 17))[0].numpy() / 8**0.5
    for k in range(4):
        row = x[k].flatten().numpy()
        kept = np.where(np.abs(row) >= np.sort(np.abs(row))[-10], row, 0)
        padded = np.append(kept, 0.0)
        hand = np.concatenate([matrix @ padded[c::3] for c in range(3)])
        np.testing.assert_allclose(coded.blocks["measured"][k].numpy(), hand, rtol=1e-10)
        np.testing.assert_allclose(memory["rest/0"][k].numpy(), row - kept, atol=1e-15)


def test_compressed_sensing_recovers_the_mean_and_each() -> None:
    """60 of 999 reals in two chunks, half as many measurements: error below 1e-6 of the whole."""
    config = CompressedSensingConfig(keep=0.06, chunk=500, iterations=100)
    codec, x = made(CompressedSensing, config), sparse_rows(3, 999, 60)
    payload = (Group({"a": x[:, :400].view(3, 20, 20), "b": x[:, 400:]}),)
    (coded,), _ = encode(codec, payload)
    mean = {name: block.mean(0, keepdim=True) for name, block in coded.blocks.items()}
    back = codec.decode(Received((mean,), (torch.ones(1),), (coded.blocks,), None))
    assert back.each is not None
    for got, true in ((back.mean[0], x.mean(0, keepdim=True)), (back.each[0], x)):
        assert got["a"].shape == (len(true), 20, 20)
        flat = torch.cat([got["a"].flatten(1), got["b"]], 1)
        assert ((flat - true).norm(dim=1) <= 1e-6 * true.norm(dim=1)).all()


def test_compressed_sensing_has_no_numbers_from_nowhere() -> None:
    """8 x 256 with 8 non-zero reals cannot be recovered (AMP diverges), nor can noise."""
    config = CompressedSensingConfig(keep=8 / 256, ratio=8 / 256, chunk=256, iterations=200)
    codec, x = made(CompressedSensing, config), sparse_rows(2, 256, 8)
    (coded,), _ = encode(codec, (Group({"a": x}),))
    back = codec.decode(Received((coded.blocks,), (torch.ones(2),), None, None))
    assert back.mean[0]["a"].isfinite().all()
    assert back.mean[0]["a"].norm() < 10 * x.norm()


def test_what_codecs_refuse() -> None:
    twice = (Group({"a": normal(3, 8)}, rows=torch.tensor([0, 1, 1])),)
    for cls, config in (
        (Qsgd, QsgdConfig()),
        (TopK, TopKConfig()),
        (CompressedSensing, CompressedSensingConfig()),
    ):
        with pytest.raises(UserError, match="several rows of a device"):
            encode(made(cls, config), twice)
    masked = (Group({"a": normal(2, 8)}, mask={"a": torch.ones(8)}),)
    with pytest.raises(UserError, match="know only some"):
        encode(made(CompressedSensing, CompressedSensingConfig()), masked)
    with pytest.raises(ValidationError, match="fewer measurements"):
        CompressedSensingConfig(keep=0.3, ratio=0.2)
