"""Codec laser: one factor of each layer in turn, against a looped power iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run, scenario
from support.codec_bench import acknowledge, draw_normal, encode, make_codec
from support.refusals import assert_refused

from otafl.codecs.laser import Laser, compute_gains
from otafl.core.contracts import Group, Received

pytestmark = pytest.mark.exact


def codec_of(**settings: object) -> Laser:
    codec: Laser = make_codec(Laser, Laser.Settings(**settings))
    return codec


def decode(codec: Laser, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The decoded mean of all devices' tensors."""
    mean = {name: block.mean(0, keepdim=True) for name, block in tensors.items()}
    return codec.decode(Received((mean,), (torch.ones(1),), None, None)).mean[0]


@pytest.mark.twin
@pytest.mark.parametrize(("split", "feedback"), [("none", False), ("optimal", True)])
def test_equals_a_looped_power_iteration(split: str, feedback: bool) -> None:
    """Three devices, one matrix and a vector, four rounds, with noise on what arrives."""
    codec = codec_of(rank=2, power_split=split, error_feedback=feedback)
    rng = np.random.default_rng(0)
    rests = [np.zeros((9, 7)) for _ in range(3)]
    memory: Any = None
    received = np.zeros((1, 2))
    for t in range(4):
        m, v = rng.standard_normal((3, 9, 7)), rng.standard_normal((3, 5))
        group = Group({"m": torch.from_numpy(m), "v": torch.from_numpy(v)})
        (coded,), memory = encode(codec, (group,), memory, round=t)
        common = codec._sent[0].bases["m"][0].numpy()
        np.testing.assert_allclose(common.T @ common, np.eye(2), atol=1e-12)
        if t:
            spanned = received @ np.linalg.lstsq(received, common, rcond=None)[0]
            np.testing.assert_allclose(spanned, common, atol=1e-10)
        gain = {name: float(g[0]) for name, g in codec._sent[0].gains.items()}
        assert (gain["m"] == gain["v"] == 1.0) == (t < 2 or split == "none")
        sent = []
        for k in range(3):
            a = m[k] + rests[k]
            factor = a.T @ common if t % 2 == 0 else a @ common
            np.testing.assert_allclose(coded.tensors["m"][k], gain["m"] * factor, atol=1e-12)
            low_rank = common @ factor.T if t % 2 == 0 else factor @ common.T
            rests[k] = a - low_rank if feedback else rests[k]
            sent.append(factor)
        np.testing.assert_allclose(coded.tensors["v"], gain["v"] * v, atol=1e-12)
        noise = 0.1 * rng.standard_normal(sent[0].shape)
        received = np.mean(sent, 0) + noise
        air = dict(coded.tensors)
        air["m"] = air["m"] + gain["m"] * torch.from_numpy(noise)
        out = decode(codec, air)
        expected = common @ received.T if t % 2 == 0 else received @ common.T
        np.testing.assert_allclose(out["m"][0], expected, atol=1e-12)
        np.testing.assert_allclose(out["v"][0], v.mean(0), atol=1e-12)
        if feedback:
            memory = acknowledge(codec, (coded,), memory)
            rest = memory["rest/0"].view(3, -1)
            np.testing.assert_allclose(rest[:, :63], np.reshape(rests, (3, 63)), atol=1e-12)
            np.testing.assert_allclose(rest[:, 63:], 0.0, atol=1e-12)


def test_a_trial_that_received_nothing_keeps_its_factors() -> None:
    codec, x = codec_of(rank=1), draw_normal(2, 6, 5)
    (coded,), _ = encode(codec, (Group({"x": x}),))
    old = codec._get_factor(0, "x", (6, 5), 1, False).clone()
    decode(codec, {name: 0.0 * block for name, block in coded.tensors.items()})
    torch.testing.assert_close(codec._factors[0, "x", False], old)
    assert codec._norms[0, "x", True].eq(1.0).all()
    decode(codec, coded.tensors)
    assert not torch.allclose(codec._factors[0, "x", False], old)


def test_layers_of_a_flat_model_are_found() -> None:
    codec = codec_of(rank=2)
    codec.model_shapes = {"weight0": (12, 10), "bias0": (10,), "small": (2, 3)}
    flat = draw_normal(3, 136)
    (coded,), memory = encode(codec, (Group({"model": flat}),))
    shapes = {name: tuple(block.shape[1:]) for name, block in coded.tensors.items()}
    assert shapes == {"model.weight0": (10, 2), "model.bias0": (10,), "model.small": (2, 3)}
    assert memory["rest/0"].shape == (3, 136)
    assert decode(codec, coded.tensors)["model"].shape == (1, 136)
    (odd,), _ = encode(codec, (Group({"model": flat}),), round=1)
    assert odd.tensors["model.weight0"].shape == (3, 12, 2)
    assert codec.count_bits(odd) == 32 * (24 + 10 + 6)


@pytest.mark.parametrize("split", ["norm", "optimal"])
def test_gains_keep_the_energy_and_share_it(split: str) -> None:
    norms = torch.tensor([[3.0], [1.0], [0.5]], dtype=torch.float64)
    lengths = torch.tensor([4.0, 100.0, 9.0], dtype=torch.float64)
    gains = compute_gains(norms, lengths, split)  # type: ignore[arg-type]
    energy = (gains * norms).square()[:, 0]
    assert float(energy.sum()) == pytest.approx(float(norms.square().sum()))
    part = {"norm": [3, 1, 0.5], "optimal": [6, 10, 1.5]}[split]
    np.testing.assert_allclose(energy / energy.sum(), np.array(part) / sum(part))
    norms[1] = 0.0
    assert compute_gains(norms, lengths, split).eq(1.0).all()  # type: ignore[arg-type]


def test_what_does_not_go_with_factors() -> None:
    cases = [
        ({"devices.protocol": "asynchronous", "devices.compute": "phone"}, "whose factor is that"),
        ({"devices.late": "next", "devices.compute": "phone"}, "use late: drop"),
        ({"transport": "fsk_majority_vote"}, "gives the server a vote"),
        ({"robust": {"groups": 4, "rule": "coordinate_median"}}, "decodes one mean"),
        ({"algorithm": "fedamp", "transport": "digital"}, "the algorithm needs each update"),
        ({"transport": {"name": "over_the_air", "normalise": "block"}}, "use power_split: none"),
        ({"topology": {"name": "graph"}}, "graph"),
        ({"algorithm": {"name": "fedavg", "sends": "model"}}, "so it needs increments"),
    ]
    refused = [(({"codec": "laser", **keys},), said) for keys, said in cases]
    assert_refused(lambda case: scenario(case[0]), refused)
    codec = {"name": "laser", "error_feedback": False}
    late = [
        (("zeroth_order",), "sends none that rank 4 shortens"),
        (("heterofl",), "factorises whole"),
    ]
    assert_refused(lambda case: run(engine({"algorithm": case[0], "codec": codec}), 1), late)


@pytest.mark.parametrize(("split", "gains"), [("none", 0), ("norm", 4)])
def test_received_factors_are_broadcast(split: str, gains: int) -> None:
    """Layers of 64 x 4 and 4 x 10, of which rank 1 shortens both: a factor has 64 + 4 or 4 + 10.

    The first left factors are drawn from a seed, and gains follow from norms of the same direction.
    """
    one = engine({"codec": {"name": "laser", "rank": 1, "power_split": split}})
    whole, sent = 64 * 4 + 4 + 4 * 10 + 10, []
    for t in range(4):
        before = one.downlink_bits.copy()
        one.run_round(t)
        sent.append(float((one.downlink_bits - before)[0]) / 32 - whole)
    assert sent == [0, 4 + 10, 64 + 4 + gains, 4 + 10 + gains]
