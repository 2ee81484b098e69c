"""Memory of a trial by one formula, and scenarios that this machine has no room for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from contract.small import ALGORITHMS, engine, run, scenario
from support.command import call

import otafl
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.running import memory

pytestmark = pytest.mark.exact

MLP = 64 * 4 + 4 + 4 * 10 + 10
"""Parameters of the small model."""


@pytest.mark.parametrize(
    ("keys", "numbers"),
    [
        ({}, 4 * MLP + 2 * 4 * MLP),
        ({"devices.participants": 2}, 4 * MLP + 2 * 2 * MLP),
        ({"algorithm": "ditto"}, 4 * MLP + 2 * 4 * MLP + 2 * 4 * MLP),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_formula(keys: dict[str, Any], numbers: int, dtype: str) -> None:
    """Four servers' states and two payloads a participant, two states a device of the method; 16
    bytes a sample, 300 a device, and four times the complex channel."""
    one = scenario({"engine.dtype": dtype, "channel": {"name": "rayleigh", "antennas": 3}, **keys})
    size = 4 if dtype == "float32" else 8
    channel = 4 * (one.devices.participants or 4) * 3 * 2 * size
    expected = numbers * size + 16 * 300 + 300 * 4 + channel
    assert memory.estimate_trial(one) == expected
    cells = scenario({**keys, "topology": {"name": "cells", "servers": 3}})
    one_cell = scenario(keys)
    assert memory.estimate_trial(cells) - 16 * 300 == 3 * (
        memory.estimate_trial(one_cell) - 16 * 300
    )
    engine_keys = one.engine.model_copy(update={"memory_gb": 2.5 * expected / 2**30})
    assert memory.count_trials_at_once(one.model_copy(update={"engine": engine_keys})) == 2
    little = one.engine.model_copy(update={"memory_gb": 1e-9})
    assert memory.count_trials_at_once(one.model_copy(update={"engine": little})) == 1


def test_the_state_of_every_method_has_room() -> None:
    """What servers and devices have after two rounds takes no more than the estimate, and at least
    a fortieth of it."""
    found = {}
    for algorithm in ALGORITHMS:
        example = registry.load_settings_class("algorithm", algorithm).example
        keys = {"algorithm": algorithm, "trials": 1, "model.hidden": [20], **example}
        one = run(engine(keys), 2)
        blocks = [*one.server.values(), *one.devices.get_all().values()]
        states = sum(block.nbytes for block in blocks if isinstance(block, torch.Tensor))
        found[algorithm] = states / memory.estimate_trial(scenario(keys))
    assert {name: share for name, share in found.items() if not 1 / 40 < share < 1} == {}


@pytest.mark.parametrize("hidden", [[10**6, 10**6], [10**9, 10**9, 10**9]])
def test_a_run_refuses_a_model_that_no_memory_holds(hidden: list[int]) -> None:
    tree = {"name": "x", "algorithm": "fedrlr", "model": {"name": "mlp", "hidden": hidden}}
    with pytest.raises(UserError, match=r"model: one trial takes [\d,]+ GB at least \(mlp of"):
        otafl.run(tree)


def test_a_check_warns_of_every_size_of_a_sweep_once(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    sweep = {"model.hidden": [[4], [10**6, 10**6]], "channel.snr_db": [0, 10]}
    tree = scenario({"sweep": sweep}).model_dump(mode="json", exclude_unset=True)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(tree))
    call("check", tmp_path / "s.yaml")
    said = capsys.readouterr().err
    assert "valid; 4 points, 2 of them without a rehearsal" in said
    assert said.count("1,000,076,000,010 parameters") == 1


def test_a_channel_that_is_larger_than_the_machine_is_refused() -> None:
    """Before anything of it is made."""
    keys = {"channel": {"name": "rayleigh", "antennas": 10**8}, "devices.count": 100}
    with pytest.raises(UserError, match=r"100 devices, 100,000,000 antennas, .* fewer devices or"):
        memory.check_room(scenario(keys))
