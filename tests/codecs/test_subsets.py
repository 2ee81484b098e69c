"""Codecs that send some coordinates: what is sent, what it costs, and the memory of the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from contract.small import scenario
from support.codec_bench import STREAMS, acknowledge, draw_normal, encode, make_codec
from twins.setting import everyone

import otafl
from otafl import UserError
from otafl.codecs.sparse import count_position_bits
from otafl.codecs.subsets import RandomSubset, SharedSubset, TopK
from otafl.core.contracts import Broadcast, Cohort, Group, Payload, Received
from otafl.core.rng import Streams


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


@pytest.mark.exact
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


@pytest.mark.exact
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


@pytest.mark.exact
def test_bits_in_tdpfeds_proportion() -> None:
    """Of the DNN's 79,510 parameters; positions cost a map of the parameters, shorter than a list
    of 17 bits each."""
    group, rate, values = Group({"model": torch.zeros(1, 79_510)}), 1.5, 53_007
    codec = RandomSubset(RandomSubset.Settings(keep=1 / rate), {}, Streams([1], [0]))
    assert codec.count_bits(group) == 32 * values + 79_510
    few = RandomSubset(RandomSubset.Settings(keep=0.001), {}, Streams([1], [0]))
    assert few.count_bits(group) == 80 * (32 + math.ceil(math.log2(79_510)))
    whole = RandomSubset(RandomSubset.Settings(keep=1.0), {}, Streams([1], [0]))
    assert whole.count_bits(group) == 32 * 79_510


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


@pytest.mark.exact
def test_all_devices_send_the_same_reals_and_nothing_else() -> None:
    codec = codec_of(keep=0.29)
    first, later = places(codec, 50), places(codec, 50, round=1)
    assert len(set(first)) == len(first) == len(later) == 14 != len(set(first) & set(later))
    assert places(codec_of(keep=0.29), 50) == first
    assert sorted(places(codec_of(keep=1.0), 50)) == list(range(50))


@pytest.mark.exact
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


@pytest.mark.exact
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


def choose_by_hand(
    size: np.ndarray, age: np.ndarray, draw: np.ndarray, k: int, most: int, rule: str
) -> list[int]:
    """Sort the coordinates of one trial by magnitude, then by age; the draw decides ties."""
    by_size = sorted(range(len(size)), key=lambda i: (-size[i], draw[i]))
    top, rest = by_size[:most], by_size[most:]
    kept, candidates = ([], top) if rule == "age_top_k" else (top, rest)
    oldest = sorted(candidates, key=lambda i: (-age[i], draw[i]))
    return sorted(kept + oldest[: k - len(kept)])


@pytest.mark.exact
@pytest.mark.parametrize(
    ("rule", "largest", "most"),
    [
        ("age_top_k", 0.5, 10),
        ("age_top_k", 0.2, 4),
        ("age_top_k", 1.0, 20),
        ("fair_k", 0.5, 2),
        ("fair_k", 1.0, 4),
    ],
)
def test_the_server_chooses_by_magnitude_and_age(rule: str, largest: float, most: int) -> None:
    """Four of twenty coordinates in each of 40 rounds and two trials. Coordinates that were never
    received count as infinitely large; one trial receives nothing in the third round. r = k is the
    server's top-k, and r = P round robin."""
    codec = codec_of(keep=0.2, rule=rule, largest=largest, error_feedback=False)
    who = everyone(torch.full((2, 4), 0.25))
    size, age, since = np.full((2, 20), np.inf), np.zeros((2, 20)), []
    for t in range(40):
        if t == 20:  # as from a checkpoint
            other = codec_of(keep=0.2, rule=rule, largest=largest, error_feedback=False)
            other.load_state_dict(codec.state_dict())
            codec = other
        draw = STREAMS.draw_uniform("shared_subset/0", t, (20,))[0].numpy()
        x = draw_normal(8, 20, seed=t)
        (coded,), _ = codec.encode((Group({"w": x}),), {}, who, t, STREAMS)
        mean = coded.tensors["sent"].view(2, 4, -1).mean(1)
        arrived = torch.tensor([t != 2, True])
        received = Received(({"sent": mean},), (torch.ones(2),), None, arrived)
        back = codec.decode(received).mean[0]["w"]
        for s in range(2):
            expected = choose_by_hand(size[s], age[s], draw, 4, most, rule)
            assert back[s].nonzero()[:, 0].tolist() == expected
            sums = x[4 * s : 4 * s + 4].mean(0).numpy()
            np.testing.assert_allclose(back[s].numpy()[expected], sums[expected])
            age[s] += 1.0
            if arrived[s]:
                size[s, expected], age[s, expected] = np.abs(sums[expected]), 0.0
        since.append(age[1].max())
    if most == 20:
        assert since[-1] == 4  # of P / k = 5 rounds
    if (rule, most) == ("age_top_k", 4):  # until all are known, and then by magnitude alone
        assert since[-1] > 30


@pytest.mark.parametrize(
    "uplink",
    [
        {"transport": "ofdm", "power": "tci"},
        {"transport": "over_the_air", "power": "blind"},
        {"transport": {"name": "sumcomp", "radices": [16, 16]}, "power": "ci"},
        {"transport": "digital", "power": "gbma"},
    ],
)
def test_chosen_coordinates_over_every_kind_of_uplink(uplink: dict[str, Any]) -> None:
    keys = {"name": "shared_subset", "keep": 0.1, "rule": "age_top_k"}
    tree: dict[str, Any] = {"name": "s", "codec": keys, "devices": {"count": 3}, "trials": 2}
    tree |= {"data": "digits", "model": "softmax_regression", "channel": {"snr_db": 20.0}}
    tree |= {"algorithm": {"name": "fedavg", "learning_rate": 0.5}, "training": {"rounds": 12}}
    channel = {"snr_db": 20.0, "antennas": 64 if uplink["power"] == "blind" else 1}
    found = otafl.run(tree | {"channel": channel} | uplink)
    assert found.test_accuracy.isel(round=-1).min() > 0.5


@pytest.mark.exact
def test_positions_that_the_server_chooses_are_charged_to_the_downlink() -> None:
    """The first are drawn; then 4 of 200 coordinates take 8 bits each, one real number."""
    codec, sent = codec_of(keep=0.02, rule="fair_k"), Broadcast({"model": torch.zeros(3, 200)})
    assert codec.extend_broadcast(sent, 0).side_coordinates == 0
    encode(codec, (Group({"w": draw_normal(3, 200)}),))
    assert codec.extend_broadcast(sent, 1).side_coordinates == 1
    random = codec_of(keep=0.02)
    encode(random, (Group({"w": draw_normal(3, 200)}),))
    assert random.extend_broadcast(sent, 1).side_coordinates == 0


@pytest.mark.exact
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"codec.largest": 0.5}, "largest has no effect with rule: random"),
        ({"codec.rule": "age_top_k", "codec.largest": 0.05}, "must be at least keep"),
        ({"codec.rule": "fair_k", "robust.rule": "krum"}, "decodes one mean"),
        ({"codec.rule": "fair_k", "algorithm.name": "fedpac"}, "algorithm needs each update"),
    ],
)
def test_what_the_rules_refuse(keys: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        scenario({"codec.name": "shared_subset", **keys})


@pytest.mark.exact
@pytest.mark.parametrize(
    ("devices", "said"),
    [({"protocol": "asynchronous"}, "'asynchronous' does not go"), ({"late": "next"}, "'next'")],
)
def test_updates_that_come_late_are_refused(devices: dict[str, str], said: str) -> None:
    keys = {f"devices.{name}": value for name, value in devices.items()}
    with pytest.raises(UserError, match=said):
        scenario({"codec": "shared_subset", "devices.compute": "phone", **keys})


@pytest.mark.exact
def test_positions_by_hand() -> None:
    """A list of 7-bit positions or a map of 100, and C(100, 3) = 161,700 < 2^18 subsets."""
    assert count_position_bits(100, 3) == 21
    assert count_position_bits(100, 30) == 100
    assert count_position_bits(100, 3, "enumerative") == 18
    for code in ("plain", "enumerative"):
        assert count_position_bits(100, 100, code) == 0  # type: ignore[arg-type]
        assert count_position_bits(1024, 1, code) == 10  # type: ignore[arg-type]
    assert count_position_bits(1025, 1, "enumerative") == 11
    assert count_position_bits(2048, 1, "enumerative") == 11


@pytest.mark.exact
def test_topk_with_memory_by_hand() -> None:
    """Two of five. Round 0 leaves (0, 1, 0, -2, 0); round 1 sends 3 + 1 and -1 - 2."""
    codec = make_codec(TopK, TopK.Settings(keep=0.4))
    first, second = torch.tensor([[-5.0, 1, 3, -2, 0]]), torch.tensor([[1.0, 3, 1, -1, 0]])
    (sent,), memory = encode(codec, (Group({"a": first}),))
    assert sent.tensors["a"].tolist() == [[-5, 0, 3, 0, 0]]
    memory = acknowledge(codec, (sent,), memory)
    assert memory["rest/0"].tolist() == [[0, 1, 0, -2, 0]]
    (sent,), memory = encode(codec, (Group({"a": second}),), memory)
    assert sent.tensors["a"].tolist() == [[0, 4, 0, -3, 0]]
    memory = acknowledge(codec, (sent,), memory)
    assert memory["rest/0"].tolist() == [[1, 0, 1, 0, 0]]


@pytest.mark.exact
def test_memory_of_explicit_rows_and_of_unknown_coordinates() -> None:
    """Rows 2 and 0 of three devices; the second knows only coordinates 1 and 2. Device 1 keeps its
    memory, as does device 0 for the coordinate that it does not know."""
    codec = make_codec(TopK, TopK.Settings(keep=1 / 3))
    block = torch.tensor([[1.0, 2, -3], [9, 1, 2]])
    mask = torch.tensor([[1.0, 1, 1], [0, 1, 1]])
    group = Group({"a": block}, row_index=torch.tensor([2, 0]), mask={"a": mask})
    before = torch.tensor([[10.0, 0, -4], [7, 7, 7], [0, 0, 0]])
    (sent,), memory = encode(codec, (group,), {"rest/0": before})
    assert sent.tensors["a"].tolist() == [[0, 0, -3], [0, 0, -2]]
    memory = acknowledge(codec, (sent,), memory)
    assert memory["rest/0"].tolist() == [[10, 1, 0], [7, 7, 7], [1, 2, 0]]
    assert before.tolist() == [[10, 0, -4], [7, 7, 7], [0, 0, 0]]


@pytest.mark.exact
def test_what_is_not_received_stays_whole_in_the_memory() -> None:
    """Three devices send two of five reals: one is heard, one is not, of one the first half is."""
    codec = make_codec(TopK, TopK.Settings(keep=0.4))
    x = torch.tensor([[-5.0, 1, 3, -2, 0]]).repeat(3, 1)
    (sent,), memory = encode(codec, (Group({"a": x}),))
    assert memory["rest/0"].tolist() == x.tolist()
    heard = torch.tensor([[True] * 5, [False] * 5, [True, True, False, False, False]])
    memory = acknowledge(codec, (sent,), memory, heard)
    assert memory["rest/0"].tolist() == [[0, 1, 0, -2, 0], [-5, 1, 3, -2, 0], [0, 1, 3, -2, 0]]
    assert make_codec(TopK, TopK.Settings()).has_memory
    assert not make_codec(TopK, TopK.Settings(error_feedback=False)).has_memory


@pytest.mark.exact
def test_rounded_values_by_hand() -> None:
    """Three bits: a sign, and the magnitudes 1, 2, 3 and 4 between the smallest and the largest of
    the four kept. The memory keeps what was left out and the rounding error."""
    codec = make_codec(TopK, TopK.Settings(keep=0.8, value_bits=3))
    x = torch.tensor([[-4.0, 1.0, 2.4, -2.6, 0.5]])
    (sent,), memory = encode(codec, (Group({"a": x}),))
    assert sent.tensors["a"].tolist() == [[-4, 1, 2, -3, 0]]
    memory = acknowledge(codec, (sent,), memory)
    torch.testing.assert_close(memory["rest/0"], torch.tensor([[0, 0, 0.4, 0.4, 0.5]]))
    assert codec.count_bits(sent) == 4 * 3 + 64 + 5  # a map of 5 bits
