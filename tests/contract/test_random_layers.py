"""A method of each kind with dropout and batch normalisation: it trains with them, the same alone
as in a stack and after a resume, or refuses them in one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from contract.small import (
    close,
    engine,
    over_fading,
    run,
    scores,
)

from otafl.core.contracts import Tensors
from otafl.engine.engine import Engine


def drop_net(
    input_shape: tuple[int, ...], classes: int, dropout: float = 0.5
) -> torch.nn.Sequential:
    """A perceptron with a batch normalisation, and dropout before its last layer."""
    return torch.nn.Sequential(
        torch.nn.Linear(*input_shape, 6),
        torch.nn.BatchNorm1d(6),
        torch.nn.ReLU(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(6, classes),
    )


MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "hidden": [4, 4]},
    "module": {"name": "contract.test_random_layers:drop_net"},
}


def build(
    algorithm: str, model: str, dropout: float = 0.5, trials: Sequence[int] | None = None
) -> Engine:
    own: dict[str, Any] = {
        "algorithm": algorithm,
        "transport": over_fading(algorithm),
        "engine.dtype": "float64",
    }
    own |= {"model": MODELS[model] | {"dropout": dropout}, "training.rounds": 3}
    return engine(own, trials)


def state(one: Engine) -> Tensors:
    devices = {f"device {name}": block for name, block in one.devices.get_all().items()}
    return {**one.server, **devices}


@pytest.mark.parametrize(
    ("algorithm", "model"),
    [("fedavg", "mlp"), ("fedavg", "module"), ("fedrlr", "mlp"), ("ditto", "module")],
)
def test_a_stack_is_alone_and_dropout_is_not_left_out(algorithm: str, model: str) -> None:
    together = run(build(algorithm, model), 2)
    alone = run(build(algorithm, model, trials=[1]), 2)
    close(scores(alone), {n: v[1:2] for n, v in scores(together).items()}, 1e-9)
    without = run(build(algorithm, model, dropout=0.0), 2)
    pairs = zip(state(together).values(), state(without).values(), strict=True)
    assert any(not torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_run_draws_the_same(model: str) -> None:
    whole = run(build("fedavg", model), 3)
    first, second = run(build("fedavg", model), 2), build("fedavg", model)
    second.load_state_dict(first.state_dict())
    second.run_round(2)
    for name, block in state(whole).items():
        assert torch.equal(block, state(second)[name])
