"""The number of dispatched operations of a round depends neither on the trials nor on the devices:
everything is stacked.

Counted over as many rounds as random numbers are drawn for at once, here 4 in place of 64, and with
a model so small that its noise is drawn in one piece, as all work is in one chunk: what is larger
than the processor's cache is cut up. There is no fading: Sionna's generator is asked once in so
many rounds for each trial.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract.small import EVERY_METHOD, EVERY_PAYLOAD, engine, over_fading
from torch.utils._python_dispatch import TorchDispatchMode

from otafl.core import rng
from otafl.data import DataSet, training_data

WARM_UP, ROUNDS = 2, 4


class DispatchCounter(TorchDispatchMode):
    """Counts the operations that are dispatched inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def blobs() -> DataSet:
    """Eight numbers around the corner that is the class."""
    generator = np.random.default_rng(0)
    y = np.arange(160) % 4
    x = np.eye(8)[y] + 0.1 * generator.standard_normal((160, 8))
    return DataSet(x[40:], y[40:], x[:40], y[:40], classes=4)


def operations(algorithm: str, transport: str, trials: int, devices: int) -> int:
    """Dispatched by ROUNDS rounds."""
    one = engine(
        {
            "algorithm": algorithm,
            "transport": transport,
            "channel": "awgn",
            "trials": trials,
            "devices.count": devices,
            "data": {"name": "contract.test_dispatch:blobs"},
            "model.hidden": [4],
            "training.local_steps": 1,
            "training.batch_size": 2,
            "engine.chunk_mb": 1000,
        }
    )
    for t in range(WARM_UP):
        one.run_round(t)
    with DispatchCounter() as counter:
        for t in range(WARM_UP, WARM_UP + ROUNDS):
            one.run_round(t)
    return counter.count


@pytest.mark.parametrize(
    ("algorithm", "transport"),
    [("fedavg", transport) for transport in EVERY_METHOD]
    + [
        (algorithm, over_fading(algorithm)) for algorithm in (*EVERY_PAYLOAD[1:], "ditto", "fedamp")
    ],
)
def test_operations_do_not_grow(
    algorithm: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (rng, training_data):
        monkeypatch.setattr(module, "_ROUNDS_AHEAD", ROUNDS)
    few = operations(algorithm, transport, trials=2, devices=4)
    assert few > ROUNDS
    many = operations(algorithm, transport, trials=8, devices=12)
    assert few <= many <= few + 10  # a payload of zeros is read twice
