"""Every server optimiser: what holds for all, numbers worked by hand, and rounds with it.

Fails if: a mean square starts at 0 in place of tau^2; Yogi's sign is Adam's; the first moment is
bias-corrected; momentum averages in place of adding up; a trial to which nothing came moves its
moments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, run
from support.rounding import assert_agree

from otafl.core import registry
from otafl.core.contracts import Hyper, Tensors
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.scenario import ScenarioError
from otafl.server.optimisers import ServerOptimiser

pytestmark = pytest.mark.exact

STREAMS = Streams([0, 0], [0, 1], dtype=torch.float64)


def made(name: str, **keys: Any) -> tuple[ServerOptimiser, Hyper]:
    """An optimiser and its numbers, of two trials."""
    optimiser: ServerOptimiser = registry.load_settings_class("server", name)(**keys)
    return optimiser, build_hyper([optimiser] * 2, STREAMS)


def by_hand(name: str, deltas: list[float], eta: float, tau: float) -> list[float]:
    """Reddi et al. 2021, Algorithm 2, on one number from 1; beta_1 0.9 (Adagrad 0), beta_2 0.99."""
    x, m, v, out = 1.0, 0.0, tau**2, []
    for delta in deltas:
        if name == "momentum":
            m = 0.9 * m + delta
            x += eta * m
        else:
            beta = 0.0 if name == "adagrad" else 0.9
            m = beta * m + (1 - beta) * delta
            if name == "adagrad":
                v = v + delta**2
            elif name == "adam":
                v = 0.99 * v + 0.01 * delta**2
            else:
                v = v - 0.01 * delta**2 * np.sign(v - delta**2)
            x += eta * m / (np.sqrt(v) + tau)
        out.append(x)
    return out


@pytest.mark.parametrize("name", ["momentum", "adagrad", "adam", "yogi"])
def test_numbers_worked_by_hand(name: str) -> None:
    keys = {"learning_rate": 0.3} | ({} if name == "momentum" else {"tau": 0.1})
    server, hyper = made(name, **keys)
    deltas = [0.5, -0.25, 0.05, 2.0]
    model = torch.ones(2, 3, dtype=torch.float64)
    memory = server.init({"model": model}, hyper)
    for delta, expected in zip(deltas, by_hand(name, deltas, 0.3, 0.1), strict=True):
        out, memory = server.step({"model": model}, {"model": model + delta}, memory, hyper)
        model = out["model"]
        np.testing.assert_allclose(model, expected, rtol=1e-12)


@pytest.mark.parametrize("name", registry.list_names("server"))
def test_what_holds_for_every_optimiser(name: str) -> None:
    """Memory is a trial's; other blocks are the method's; nothing is written to; a trial alone is
    the trial in a stack; without a step the model stays."""
    server, hyper = made(name)
    generator = torch.Generator().manual_seed(0)
    old: Tensors = {"model": torch.randn(2, 5, generator=generator, dtype=torch.float64)}
    new: Tensors = {"model": old["model"] + 0.1, "steps": torch.tensor([1, 2])}
    memory = server.init(old, hyper)
    copies = [{key: value.clone() for key, value in one.items()} for one in (old, new, memory)]
    after, kept = server.step(old, new, memory, hyper)
    for before, copy in zip((old, new, memory), copies, strict=True):
        assert before.keys() == copy.keys()
        assert all(torch.equal(before[key], copy[key]) for key in copy)
    assert after["steps"] is new["steps"]
    assert after["model"].shape == (2, 5)
    assert after["model"].dtype == torch.float64
    assert (after["model"] > old["model"]).all()
    assert {key: value.shape for key, value in kept.items()} == {
        key: value.shape for key, value in memory.items()
    }
    assert all(value.shape[0] == 2 for value in kept.values())

    def second(blocks: Tensors) -> Tensors:
        return {key: value[1:] for key, value in blocks.items()}

    alone, _ = server.step(second(old), second(new), second(memory), second(hyper))
    assert_agree(alone["model"], after["model"][1:])
    still, _ = server.step(old, old, server.init(old, hyper), hyper)
    assert torch.equal(still["model"], old["model"])


def test_momentum_without_memory_is_averaging() -> None:
    plain = run(engine({"engine.dtype": "float64"}), 3)
    keys = {"server": {"name": "momentum", "beta1": 0.0}, "engine.dtype": "float64"}
    assert_agree(run(engine(keys), 3).server, plain.server)


def test_nothing_came_nothing_moves() -> None:
    """A deadline that nobody meets: the model and the moments stay."""
    keys = {"server": "momentum", "devices.deadline_s": 1e-12, "engine.dtype": "float64"}
    one = engine(keys)
    before = one.server["model"].clone()
    run(one, 2)
    assert torch.equal(one.server["model"], before)
    assert not one.server_memory["m"].any()


def test_a_method_without_averaged_increments_is_refused() -> None:
    with pytest.raises(ScenarioError, match="which algorithm 'fedrlr' does not have"):
        engine({"server": "adam", "algorithm": "fedrlr"})
