"""Methods of every kind with a module that has frozen parameters and one of shape ().

Its twin is the same function with buffers, and with a parameter of shape (1,).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import engine, equal, over_fading, run, scores, state
from torch import nn

from otafl.engine.engine import Engine

TRAINED = 6 * 5 + 5 + 2 * 5 + 5 * 10 + 10 + 1
"""Trained coordinates of `Net`: a layer, a normalisation, the head and the scale."""

SYMBOLS = {
    "fedavg": TRAINED,
    "fedbuff": TRAINED,
    "scaffold": 2 * TRAINED,
    "fedbn": TRAINED - 2 * 5,
    "fedrep": TRAINED - 5 * 10 - 10,
}
"""Symbols of two rounds over the air, one for each coordinate that a device sends, halved."""


class Net(nn.Module):
    """A frozen backbone and gate, a trained layer and head, and a trained scale."""

    def __init__(self, is_twin: bool) -> None:
        super().__init__()
        backbone, gate = torch.linspace(-1.0, 1.0, 64 * 6).sin().view(6, 64), torch.tensor(0.5)
        if is_twin:
            self.register_buffer("backbone", backbone)
            self.register_buffer("gate", gate)
        else:
            self.backbone = nn.Parameter(backbone, requires_grad=False)
            self.gate = nn.Parameter(gate, requires_grad=False)
        self.hidden, self.norm, self.head = nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 10)
        self.scale = nn.Parameter(torch.tensor([2.0] if is_twin else 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.gate * torch.tanh(x @ self.backbone.mT)
        out: torch.Tensor = self.head(self.norm(self.hidden(features)).relu()) * self.scale
        return out


def build(algorithm: str, is_twin: bool) -> Engine:
    keys: dict[str, Any] = {"algorithm": algorithm, "transport": over_fading(algorithm)}
    keys["model"] = {"name": "contract.test_fixed_parameters:Net", "is_twin": is_twin}
    return engine(keys | {"engine.dtype": "float64"})


@pytest.mark.parametrize("algorithm", SYMBOLS)
def test_methods(algorithm: str) -> None:
    twin = run(build(algorithm, is_twin=True), 2)
    one = run(build(algorithm, is_twin=False), 2)
    equal(state(one), state(twin))
    equal(scores(one), scores(twin))
    assert one.parts.model.num_params == TRAINED
    costs, expected = one.means.take(), twin.means.take()
    for name, values in expected.items():
        np.testing.assert_array_equal(costs[name], values, name)
    assert costs["uplink_symbols"].tolist() == [2 * SYMBOLS[algorithm]] * 3
