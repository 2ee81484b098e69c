"""Every registered method and codec: what its devices and its server keep of an update that the
server has not received.

State of devices changes whatever the uplink does, except `acknowledged_state`, which changes by
what was received.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from contract.small import PAIRS, engine, equal, run

from otafl.core import registry
from otafl.core.contracts import Tensors
from otafl.engine.engine import Engine
from otafl.uplink.delivery import Delivery

SENDING = [pair for pair in PAIRS if pair[0] != "local_only"]


def is_acknowledged(algorithm: str, block: str) -> bool:
    """Whether a method says that a block of its devices changes by what was received."""
    said = registry.load_component("algorithm", algorithm).acknowledged_state
    return any(
        block == one or block.removeprefix(one)[:1] in {".", *"0123456789"}
        for one in said
        if block.startswith(one)
    )


def heard_by_few(method: str, transport: str, silent: list[int]) -> tuple[Engine, bool]:
    """An engine after two rounds, in the last of which these devices of all trials have no energy;
    and whether the transport knows of that."""
    one = engine({"algorithm": method, "transport": transport, "engine.dtype": "float64"})
    run(one, 1)
    carry = one.parts.link.transport.transmit
    energy = torch.full((3, 4), 1e30, dtype=torch.float64)
    energy[:, silent] = 0.0
    came = []

    def without(delivery: Delivery) -> None:
        delivery.limits = replace(delivery.limits, energy_budget=energy)
        carry(delivery)
        heard = delivery.report().delivered_mask_fns[:1]
        came.append(any(bool(of_group()[:, silent].any()) for of_group in heard))

    one.parts.link.transport.transmit = without  # type: ignore[method-assign]
    one.run_round(1)
    return one, not came[0]


def state(one: Engine) -> Tensors:
    return {name: block.clone() for name, block in one.devices.get_all().items()}


@functools.cache
def run_two(algorithm: str, transport: str) -> list[tuple[Tensors, Tensors]]:
    """Return the states of the server and of the devices after one round and after two."""
    one = engine({"algorithm": algorithm, "transport": transport, "engine.dtype": "float64"})
    found = []
    for t in range(2):
        one.run_round(t)
        server = {name: block.clone() for name, block in one.server.items()}
        found.append((server, state(one)))
    return found


@pytest.mark.parametrize(("algorithm", "transport"), SENDING)
def test_a_round_that_nobody_is_heard_in(algorithm: str, transport: str) -> None:
    """The server stays as it was; what is the devices' own is as if they had been heard, the rest
    as if they had not trained."""
    (before, kept), (after, changed) = run_two(algorithm, transport)
    lost, silent = heard_by_few(algorithm, transport, [0, 1, 2, 3])
    if not silent:  # nothing is lost on it
        assert transport == "ideal"
        equal(lost.server, after)
        return
    equal(lost.server, before)
    blocks = kept, state(lost), changed
    for name in blocks[0]:
        was, now, heard = (of[name] for of in blocks)
        if is_acknowledged(algorithm, name):
            assert torch.equal(now, was)
            assert not torch.equal(heard, was)
        else:
            assert torch.equal(now, heard)
