"""What a trial takes, reckoned without making it, and what this machine has no room for."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from contract.small import ALGORITHMS, scenario
from support.marks import first_is_fast

import otafl
from otafl import cli, data, models, preflight
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.data.shape import read_shape
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.running import memory
from otafl.scenario import expand

pytestmark = pytest.mark.exact

LOOK = {"fedrlr", "fedrlr_plus", "fedem", "lora"}
"""Methods that look at the numbers they start from."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_estimate_is_exact(algorithm: str) -> None:
    example = registry.load_settings_class("algorithm", algorithm).example
    one = scenario({"algorithm": algorithm} | dict(example))
    samples = data.load_cached(one.data)
    model = models.build(one.model, samples.input_shape, samples.classes)
    streams = Streams([one.seed], [0], "cpu", torch.float32)
    made = memory._count_state_bytes(one, model, streams)
    assert memory._infer_state_bytes(one, model) == (None if algorithm in LOOK else made)
    trial = memory.estimate_trial(one, read_shape(one.data))
    assert trial.bytes == made + 16 * len(samples.y_train)
    assert trial.model.num_params == model.num_params


@pytest.mark.parametrize("algorithm", ["fedavg", "fedamp", "pfedhn", "fedrlr"])
@pytest.mark.parametrize("most", [2**28, 2**14])
def test_no_more_is_made_than_is_small(
    algorithm: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond `SMALL_BYTES` a state is estimated without numbers, to the same bytes, unless its
    method looks at the numbers; the state of such a method is made.

    Fails if a state is made whatever it takes (`_estimate_state_bytes`), or none is.
    """
    example = registry.load_settings_class("algorithm", algorithm).example
    one = scenario({"algorithm": algorithm, "model.hidden": [200]} | dict(example))
    samples = data.load_cached(one.data)
    model = models.build(one.model, samples.input_shape, samples.classes)
    streams = Streams([one.seed], [0], "cpu", torch.float32)
    made = memory._count_state_bytes(one, model, streams)
    reckoned = memory._infer_state_bytes(one, model)
    ways = []
    monkeypatch.setattr(memory, "SMALL_BYTES", most)
    monkeypatch.setattr(memory, "_infer_state_bytes", lambda *_: ways.append(1) or reckoned)
    assert memory._estimate_state_bytes(one, model) == made
    assert len(ways) == (most == 2**14)


@pytest.mark.parametrize("memory_gb", [1e-5, 7e-5, 1e-4])
def test_a_state_that_must_be_made_is_not_made_beyond_the_bound(
    memory_gb: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of FedRLR's state the estimate is then a lower bound, above `engine.memory_gb`.

    Fails if the state is made whatever it takes, or the bound is not exceeded.
    """
    one = scenario({"algorithm": "fedrlr", "model.hidden": [200], "engine.memory_gb": memory_gb})
    samples = data.load_cached(one.data)
    model = models.build(one.model, samples.input_shape, samples.classes)
    made = memory._count_state_bytes(one, model, Streams([one.seed], [0], "cpu", torch.float32))
    monkeypatch.setattr(memory, "SMALL_BYTES", 2**14)
    limits = []
    real = memory.MemoryCounter.__init__

    def noted(counter: memory.MemoryCounter, most: float = math.inf) -> None:
        limits.append(most)
        real(counter, most)

    monkeypatch.setattr(memory.MemoryCounter, "__init__", noted)
    bytes_ = memory._estimate_state_bytes(one, model)
    assert memory_gb * 2**30 < bytes_ <= made
    assert all(most <= max(memory_gb * 2**30, 2**14) for most in limits)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedrlr"])
@pytest.mark.parametrize("hidden", [[10**6, 10**6], [10**9, 10**9, 10**9]])
def test_a_run_refuses_what_no_memory_holds(algorithm: str, hidden: list[int]) -> None:
    tree = {"name": "x", "algorithm": algorithm, "model": {"name": "mlp", "hidden": hidden}}
    with pytest.raises(UserError, match=r"model: one trial takes [\d,]+ GB at least \(mlp of"):
        otafl.run(tree)


def find_shortages(keys: dict[str, Any]) -> tuple[str, ...]:
    tree = scenario({}).model_dump(mode="json", exclude_unset=True)
    for key, value in keys.items():
        section, _, rest = key.partition(".")
        tree[section] = {**tree[section], rest: value} if rest else value
    return preflight.report(tree, look=lambda *_: []).warnings


def test_what_two_trials_have_in_common_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured are stacks of one trial and of two, unless there is room for many times one."""
    fixed, each = 10**6, 5 * 10**7
    monkeypatch.setattr(memory, "_measure_peak", lambda point, trials: fixed + each * len(trials))
    points = expand(scenario({"channel": "tdl-a", "trials": 2}))
    room = 8 * (fixed + each) / 2**30
    for share, need in ((0.9, (fixed, each)), (1.1, (0, fixed + each))):
        engine = points[0].scenario.engine.model_copy(update={"memory_gb": share * room})
        changed = points[0].scenario.model_copy(update={"engine": engine})
        assert memory.estimate_need([replace(points[0], scenario=changed)]) == need


def test_many_devices_take_memory_too() -> None:
    (said,) = find_shortages({"devices.count": 10**9})
    assert re.search(
        r"1,000,000,000 devices\), and this machine has [\d,]+ GB; use a smaller", said
    )


def test_every_size_of_a_sweep_is_said_once() -> None:
    sweep = {"model.hidden": [[4], [10**6, 10**6]], "channel.snr_db": [0, 10]}
    (said,) = find_shortages({"sweep": sweep})
    assert "1,000,076,000,010 parameters" in said
    assert find_shortages({}) == ()


def test_check_warns(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "x.yaml").write_text("name: x\nmodel: {hidden: [1000000, 1000000]}\n")
    with pytest.raises(SystemExit) as left:
        cli.main(["check", str(tmp_path / "x.yaml")])
    assert not left.value.code
    assert "otafl: warning: model: one trial takes" in capsys.readouterr().err


@pytest.mark.parametrize("keys", [{}, {"codec": {"name": "topk", "error_feedback": True}}])
@pytest.mark.parametrize("participants", first_is_fast([5, 60]))
def test_rows_to_come_are_reckoned(keys: dict[str, Any], participants: int) -> None:
    """A run of many rounds, of which each brings new devices, stays within what is said before it,
    and takes a third of it at least.

    Fails if rows that devices get after the first round are left out (`_peak`), or all devices'
    counted.
    """
    keys = keys | {
        "algorithm": "scaffold",
        "trials": 2,
        "devices.count": 250,
        "data.partition": "iid",
    }
    keys |= {"devices.participants": participants, "training.rounds": 12, "model.hidden": [200]}
    keys |= {"channel": "tdl-a"}  # which is measured
    (point,) = expand(scenario(keys))
    said = memory.estimate_need([point])
    with memory.MemoryCounter() as counter:
        one = Engine(assemble([point], range(2)))
        for t in range(12):
            one.run_round(t)
    assert counter.peak / 3 < said.fixed + 2 * said.per_trial
    assert counter.peak < 1.1 * (said.fixed + 2 * said.per_trial)
    assert one.devices.num_allocated == 500 or participants == 5


def test_short_memory_while_measuring_leaves_one_trial_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> int:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(memory, "_measure_peak", fails)
    points = expand(scenario({"channel": {"name": "tdl-a", "subcarrier_groups": 3}, "trials": 4}))
    assert (
        memory.estimate_need(points).count_trials_within(
            points[0].scenario.engine.memory_gb * 2**30
        )
        == 1
    )


def test_a_channel_that_is_larger_than_the_machine_is_refused() -> None:
    """Before anything of it is made: `check` would fill the memory else."""
    many = scenario({"channel": {"name": "rayleigh", "antennas": 10**8}, "devices.count": 100})
    with pytest.raises(UserError, match=r"^channel.antennas: the channel of one round takes 80 GB"):
        memory.check_channel(many)
    memory.check_channel(scenario({"channel": {"name": "rayleigh", "antennas": 1000}}))


def test_a_bound_beyond_the_machine_is_noted() -> None:
    (said,) = find_shortages({"engine.memory_gb": 1e6})
    assert said.startswith("engine.memory_gb: 1e+06 is more than the ")
