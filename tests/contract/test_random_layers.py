"""Every registered method with dropout and batch normalisation: it trains with them, the same alone
as in a stack and after a resume, or refuses them in one sentence.

Mutations that must fail: keys without the trial, without the round, of the place in the chunk; a
method that trains without dropout and does not say so; running statistics among the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from contract.small import ALGORITHMS, EVERY_PAYLOAD, close, engine, over_fading, run, scores

from otafl.core.contracts import Tensors
from otafl.core.errors import UserError
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
PAIRS = [
    pytest.param(algorithm, model, marks=() if algorithm in EVERY_PAYLOAD else pytest.mark.slow)
    for algorithm in ALGORITHMS
    for model in MODELS
]
"""Methods with each model; all but one method of each kind of payload are slow tests."""


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


def build_or_skip(algorithm: str, model: str) -> Engine:
    try:
        return build(algorithm, model)
    except UserError as error:
        pytest.skip(f"refused: {error}")


def state(one: Engine) -> Tensors:
    devices = {f"device {name}": block for name, block in one.devices.get_all().items()}
    return {**one.server, **devices}


@pytest.mark.parametrize(("algorithm", "model"), PAIRS)
def test_a_stack_is_alone_and_dropout_is_not_left_out(algorithm: str, model: str) -> None:
    together = run(build_or_skip(algorithm, model), 2)
    alone = run(build(algorithm, model, trials=[1]), 2)
    close(scores(alone), {n: v[1:2] for n, v in scores(together).items()}, 1e-9)
    without = run(build(algorithm, model, dropout=0.0), 2)
    pairs = zip(state(together).values(), state(without).values(), strict=True)
    assert any(not torch.equal(one, other) for one, other in pairs)
