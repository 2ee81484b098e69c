"""Every registered method and codec: what its devices and its server keep of an update that the
server has not received.

A method whose devices keep something must be in one of the two tables below, and in that of
docs/faults.md: a device's own, which it keeps whatever the uplink does, or moved by what was heard.

Mutations that make a test here fail: SCAFFOLD's c_i written in local work; a server's table that
takes lost rows, or a step without updates; a codec that forgets what was not heard.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from contract.small import IN_TURN, engine, equal, run

from otafl.core import registry
from otafl.core.contracts import Blocks
from otafl.engine.engine import Engine
from otafl.models.base import flatten

FAULTS = Path(__file__).parents[2] / "docs" / "faults.md"

OWN: dict[str, set[str]] = {
    "apfl": {"personal", "mixing"},
    "ditto": {"personal"},
    "fedamp": {"personal"},
    "fedbn": {"personal"},
    "fedem": {"mixing"},
    "fedfomo": {"personal", "base"},
    "fedpac": {"personal"},
    "fedrep": {"personal"},
    "fedrlr": {"u", "s", "v", "b", "weight"},
    "local_only": {"personal"},
    "pfedbayes": {"personal", "personal_rho"},
    "pfedbred": {"personal", "last"},
    "pfedme": {"personal"},
    "tdpfed": {"personal", "local"},
}
"""Method -> the blocks of a device's own, by what their names begin with."""

SETTLED: dict[str, set[str]] = {"scaffold": {"control"}}
"""Method -> the blocks that move by what was heard."""

FROM_OTHERS = {"cloud"}
"""Tables of the server whose rows are made of all devices' updates."""

SENDING = [
    pair
    for pair in IN_TURN
    if getattr(pair, "values", pair)[0] != "local_only"  # type: ignore[index]
]


def kind(method: str, name: str) -> set[str]:
    """The table entries that a block belongs to."""
    known = OWN.get(method, set()) | SETTLED.get(method, set())
    return {
        one for one in known if name == one or name.removeprefix(one)[:1] in {".", *"0123456789"}
    }


def heard_by_few(method: str, transport: str, silent: list[int]) -> tuple[Engine, bool]:
    """An engine after two rounds, in the last of which these devices of all trials have no energy;
    and whether the transport knows of that."""
    one = engine({"algorithm": method, "transport": transport, "engine.dtype": "float64"})
    run(one, 1)
    deliver = one.parts.link.transport.deliver
    energy = torch.full((3, 4), 1e30, dtype=torch.float64)
    energy[:, silent] = 0.0
    came = []

    def without(payload: Any, cohort: Any, channel: Any, t: int, limits: Any) -> Any:
        received, report = deliver(payload, cohort, channel, t, replace(limits, energy=energy))
        came.append(any(bool(of_group()[:, silent].any()) for of_group in report.heard[:1]))
        return received, report

    one.parts.link.transport.deliver = without  # type: ignore[method-assign]
    one.round(1)
    return one, not came[0]


def state(one: Engine) -> Blocks:
    return {name: block.clone() for name, block in one.devices.blocks().items()}


@pytest.mark.parametrize(("algorithm", "transport"), SENDING)
def test_a_round_that_nobody_is_heard_in(algorithm: str, transport: str) -> None:
    """The server stays as it was; what is the devices' own is as if they had been heard, the rest
    as if they had not trained."""
    keys = {"algorithm": algorithm, "transport": transport, "engine.dtype": "float64"}
    before, after = run(engine(keys), 1), run(engine(keys), 2)
    lost, silent = heard_by_few(algorithm, transport, [0, 1, 2, 3])
    if not silent:  # nothing is lost on it
        assert transport not in ("digital", "over_the_air")
        equal(lost.server, after.server)
        return
    equal(lost.server, before.server)
    blocks = state(before), state(lost), state(after)
    for name in blocks[0]:
        was, now, heard = (of[name] for of in blocks)
        (one,) = kind(algorithm, name) or {name}
        if one in SETTLED.get(algorithm, ()):
            assert torch.equal(now, was)
            assert not torch.equal(heard, was)
        else:
            assert one in OWN.get(algorithm, ()), f"say whose block '{name}' is"
            assert torch.equal(now, heard)


@pytest.mark.parametrize(("algorithm", "transport"), SENDING)
def test_a_device_that_is_not_heard(algorithm: str, transport: str) -> None:
    """What the server knows of it stays, and what it settles; the others' do not."""
    keys = {"algorithm": algorithm, "transport": transport, "engine.dtype": "float64"}
    before, (one, silent) = run(engine(keys), 1), heard_by_few(algorithm, transport, [1])
    if not silent:
        return
    tables = {
        name: (block, one.server[name])
        for name, block in before.server.items()
        if block.shape[1:2] == (4,) and block.dim() > 2 and name not in FROM_OTHERS
    }
    if algorithm in ("fedamp", "fedfomo", "fedpac", "pfedhn"):
        assert tables
        for was, now in tables.values():
            assert torch.equal(now[:, 1], was[:, 1])
        assert any(not torch.equal(now[:, 0], was[:, 0]) for was, now in tables.values())
    for prefix in SETTLED.get(algorithm, ()):
        was, now = state(before)[prefix], state(one)[prefix]
        assert torch.equal(now[:, 1], was[:, 1])
        assert not torch.equal(now[:, 0], was[:, 0])


@pytest.mark.parametrize("codec", registry.names("codec"))
def test_a_codec_remembers_what_was_not_heard(codec: str) -> None:
    """All of it, of a codec with memory, and less where it was heard."""
    chosen: Any = {"name": "matrix_sensing", "rows": 2} if codec == "matrix_sensing" else codec
    method = {"name": "fedavg", "sends": "model"} if codec == "matrix_sensing" else "fedavg"
    keys = {"algorithm": method, "codec": chosen, "engine.dtype": "float64"}
    seen, silent = run(engine(keys), 1), engine(keys | {"power": {"name": "tci", "threshold": 1e9}})
    made, encode = [], silent.parts.link.codec.encode

    def noted(payload: Any, *more: Any) -> Any:
        made.append(flatten(payload[0].blocks).clone())
        return encode(payload, *more)

    silent.parts.link.codec.encode = noted  # type: ignore[method-assign]
    silent.round(0)
    heard = seen.memory.blocks()
    assert bool(heard) == seen.parts.link.codec.remembers
    for name, kept in silent.memory.blocks().items():
        assert torch.equal(kept.flatten(0, 1), made[0])
        assert (heard[name] == 0).sum() > (kept == 0).sum()


def test_the_documentation_says_whose_everything_is() -> None:
    """A row of the table for each method whose devices keep something."""
    rows = [
        line.split("|")[1] for line in FAULTS.read_text().splitlines() if line.startswith("| `")
    ]
    for method in OWN | SETTLED:
        assert any(f"`{method}`" in row for row in rows), method
