"""Methods that only read the broadcast leave it as it is, and do the same with copies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract.small import ALGORITHMS, engine, needs, prepare_first_round
from support.rounding import SINGLE, assert_agree

from otafl.core import registry
from otafl.core.contracts import Broadcast

READERS = [
    name
    for name in ALGORITHMS
    if registry.load_component("algorithm", name).only_reads_broadcast and needs(name) == "mean"
]


@pytest.mark.parametrize("chunk_mb", [None, 1e-6])
@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize("algorithm", READERS)
def test_readers_share_the_broadcast(
    algorithm: str, trials: int, chunk_mb: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local work writes neither to the server's tensors nor to those of another row."""
    method = registry.load_component("algorithm", algorithm)
    shared: list[bool] = []
    view_rows = Broadcast.view_rows

    def record_view(self: Broadcast, *rows: Any) -> Broadcast:
        out = view_rows(self, *rows)
        memory = {one.untyped_storage().data_ptr() for one in self.tensors.values()}
        shared.extend(one.untyped_storage().data_ptr() in memory for one in out.tensors.values())
        return out

    monkeypatch.setattr(Broadcast, "view_rows", record_view)
    found = []
    for reads in (True, False):
        monkeypatch.setattr(method, "only_reads_broadcast", reads)
        changes = {"algorithm": algorithm, "transport": "ideal", "engine.chunk_mb": chunk_mb}
        own = engine({**changes, "trials": trials})
        for t in range(2):
            before = {name: block.clone() for name, block in own.server.items()}
            with torch.inference_mode():
                broadcast, cohort = prepare_first_round(own)
                own.train_cohort(broadcast, cohort, t)
            for name, block in own.server.items():
                torch.testing.assert_close(block, before[name], rtol=0, atol=0)
            own.run_round(t)
        found.append(list(own.server.values()))
    assert_agree(*found, tolerance=2 * SINGLE)  # after two rounds
    assert shared
    assert all(shared) == (trials == 1)
