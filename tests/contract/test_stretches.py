"""A payload of several fades, in some of which some devices are silent: what the server makes of
each stretch is the mean of those who were heard in it, and where nobody was it keeps what it has.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract.small import engine
from torch import Tensor

from otafl.algorithms.low_rank.low_rank_layers import get_point
from otafl.core.contracts import MODEL, Group, Payload, Tensors
from otafl.engine.engine import Engine
from otafl.factorised.lowrank import to_dense
from otafl.models.base import flatten, unflatten
from otafl.uplink.delivery import Delivery

pytestmark = pytest.mark.exact

FADE, DEVICES = 16, 3
"""Symbols of a fade; devices, of which tci silences most in most fades."""

KEYS: dict[str, Any] = {
    "channel": {"name": "rayleigh", "snr_db": 200.0, "block_symbols": FADE},
    "power": {"name": "tci", "threshold": 1.0},
    "data": {"name": "digits", "train_samples": 300, "partition": {"name": "iid"}},
    "devices.count": DEVICES,
    "output.save_link": True,
    "engine.dtype": "float64",
}


def a_round(algorithm: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Payload]:
    """An engine after its first round, and what its devices have sent."""
    one = engine({"algorithm": algorithm, **KEYS})
    transport, sent = one.parts.link.transport, []
    carry = transport.transmit

    def listening(delivery: Delivery) -> None:
        for group in delivery.payload:
            blocks = {name: block.clone() for name, block in group.tensors.items()}
            sent.append(Group(blocks, weighting=group.weighting))
        carry(delivery)

    monkeypatch.setattr(transport, "transmit", listening)
    one.run_round(0)
    return one, tuple(sent)


def heard_of(one: Engine, payload: Payload) -> list[Tensor]:
    """Who was on air at each real of each group, [S, K, P]."""
    out, first = [], 0
    for index, group in enumerate(payload):
        fade = torch.arange(first, first + group.num_coordinates) // FADE
        active = one.link[0][f"active/{index}"].mT  # [S, K, Q]
        out.append(active[:, :, fade - fade[0]])
        first += group.num_coordinates
    assert any(bool((~each.any(1)).any()) for each in out)  # a stretch of nobody's
    assert any(bool((each.any(1) & ~each.all(1)).any()) for each in out)
    return out


def mean_of_heard(group: Group, heard: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over those who were heard of each real, 0 where nobody was; and how many: [S, P]."""
    rows = flatten(group.tensors).unflatten(0, (-1, DEVICES))
    number = heard.sum(1)
    return (rows * heard).sum(1) / number.clamp_min(1), number


def blocks_of(one: Engine, names: list[str]) -> Tensor:
    """The server's model side by side, [S, P], in the order of names."""
    server: Tensors = one.server
    if MODEL in server and names != [MODEL]:
        server = unflatten(server[MODEL], one.parts.model.shapes)
    return flatten({name: server[name] for name in names})


@pytest.mark.parametrize(
    ("algorithm", "step"),
    [
        ({"name": "fedavg", "sends": "model"}, 1.0),
        ({"name": "fedavg", "sends": "model", "server_learning_rate": 0.5}, 0.5),
        ({"name": "prox_sgd", "bias_mode": "ota"}, 1.0),
        ({"name": "fedasync", "sends": "model", "mixing": 0.6}, 0.6),
    ],
)
def test_whole_models(
    algorithm: dict[str, Any], step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay as they were where nobody was heard."""
    start = engine({"algorithm": algorithm, **KEYS})
    one, payload = a_round(algorithm, monkeypatch)
    for group, heard in zip(payload, heard_of(one, payload), strict=True):
        names = list(group.tensors)
        old, new = (blocks_of(each, names) for each in (start, one))
        mean, number = mean_of_heard(group, heard)
        if group.weighting == "none":
            mean = mean * DEVICES  # of which each has sent its part
        law = torch.where(number > 0, torch.lerp(old, mean, step), old)
        torch.testing.assert_close(new, law, rtol=1e-7, atol=1e-9)


def test_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedBuff adds up what was heard of each real."""
    one, payload = a_round({"name": "fedbuff", "buffer": 50}, monkeypatch)
    (heard,) = heard_of(one, payload)
    mean, number = mean_of_heard(payload[0], heard)
    torch.testing.assert_close(one.server["buffer"], mean * number, rtol=1e-7, atol=1e-9)
    assert torch.equal(one.server["came"], number.amax(1))


def test_increments_of_equal_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """TDPFed's uniform mean, (20)."""
    algorithm = {"name": "tdpfed", "weights": "uniform", "server_learning_rate": 1.0}
    start = engine({"algorithm": algorithm, **KEYS})
    one, payload = a_round(algorithm, monkeypatch)
    for group, heard in zip(payload, heard_of(one, payload), strict=True):
        names = list(group.tensors)
        moved = blocks_of(one, names) - blocks_of(start, names)
        mean, _ = mean_of_heard(group, heard)
        torch.testing.assert_close(moved, mean * DEVICES, rtol=1e-7, atol=1e-9)


def test_coded_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedRLR's sums, each real over the root of the weight that was heard, (31); biases stay where
    nobody was."""
    algorithm = {"name": "fedrlr", "rank": 2, "bias_mode": "ota"}
    start = engine({"algorithm": algorithm, **KEYS})
    one, payload = a_round(algorithm, monkeypatch)
    coded, biases = heard_of(one, payload)
    mean, number = mean_of_heard(payload[0], coded)
    shapes = {name: block.shape[1:] for name, block in payload[0].tensors.items()}
    factors = unflatten(mean * (number * DEVICES).sqrt(), shapes)
    for layer in range(2):
        law = factors[f"u{layer}"].mT @ factors[f"v{layer}"]
        torch.testing.assert_close(
            to_dense(get_point(one.server, layer)), law, rtol=1e-7, atol=1e-9
        )
    mean, number = mean_of_heard(payload[1], biases)
    names = list(payload[1].tensors)
    law = torch.where(number > 0, mean, blocks_of(start, names))
    torch.testing.assert_close(blocks_of(one, names), law, rtol=1e-7, atol=1e-9)
