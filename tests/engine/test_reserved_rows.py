"""Users' methods have memory of their own for each chunk's increments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from contract.small import engine

pytestmark = pytest.mark.exact

METHOD = """
from dataclasses import replace

from otafl.algorithms.baselines.fedavg import FedAvg


class Twice(FedAvg):
    def run_local_update(self, broadcast, devices, context):
        state, first, loss = super().run_local_update(broadcast, devices, context)
        fast = {**context.hyper, "learning_rate": 3.0 * context.hyper["learning_rate"]}
        _, second, _ = super().run_local_update(broadcast, devices, replace(context, hyper=fast))
        own = {name: 2.0 * one - second[0].tensors[name] for name, one in first[0].tensors.items()}
        return state, (type(first[0])(own),), loss
"""


def test_chunks_change_no_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that trains twice in a chunk gets two increments, not one memory twice."""
    (tmp_path / "twice_method.py").write_text(METHOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for chunk_mb in (1000.0, 1e-6):
        made = engine(
            {
                "algorithm": "twice_method:Twice",
                "engine.chunk_mb": chunk_mb,
                "engine.dtype": "float32",
            }
        )
        for t in range(2):
            made.run_round(t)
        found.append(made.server["model"])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
    assert found[0].abs().max() > 0
