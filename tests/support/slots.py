"""Runs slots of an asynchronous method by hand: devices that begin and arrive when they like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from support.rival_rounds import CLASSES, INPUTS, SIZES, STEPS, Rounds, receive_exactly, to_arrays
from torch import Tensor
from twins.rivals import Params
from twins.setting import minibatch, mlp

from otafl.core.contracts import Cohort, Group, LocalContext
from otafl.models.base import unflatten

MODEL = mlp((INPUTS, 5, CLASSES))
RATES = [0.3, 0.05]
F64 = torch.float64


@dataclass
class Sent:
    """Says what a device is at: the flat payload, and the version it began with."""

    row: Tensor
    version: int


class Slots(Rounds):
    """Runs a method over two trials of five devices that come and go: `begin` and `run_slot` by
    (trial, device)."""

    def __init__(
        self,
        name: str,
        settings: dict[str, Any] | None = None,
        sizes: list[list[int]] = SIZES,
        **fields: Any,
    ) -> None:
        """fields: stackable ones, a list by trial."""
        super().__init__(name, MODEL, settings, sizes=sizes, **fields)
        self.sent: dict[tuple[int, int], Sent] = {}
        self.slots = 0

    def make_context(self, cohort: Cohort, draw: int = 0) -> LocalContext:
        return LocalContext(
            cohort, self.hyper, self.streams, self.slots, self.data.select_cohort(draw, cohort)
        )

    def reweight(self, cohort: Cohort) -> Cohort:
        """Return the cohort with the method's own weights."""
        return replace(cohort, weight=self.method.compute_weights(self.make_context(cohort)))

    def get_version(self) -> list[int]:
        steps = self.server.get("version")
        return [self.slots, self.slots] if steps is None else list(steps.tolist())

    def begin(self, who: list[tuple[int, int]], draw: int) -> Tensor:
        """Do local work from what is broadcast now, on minibatches of round `draw`; returns the
        losses."""
        cohort = self.all.take(torch.tensor([5 * s + k for s, k in sorted(who)]))
        cohort = self.reweight(cohort)
        down = self.method.broadcast(self.server, cohort)
        assert list(down.tensors) == ["model"]
        rows = down.expand_rows(cohort, 0, cohort.num_rows)
        state, (group,), loss = self.method.run_local_update(
            rows, {}, self.make_context(cohort, draw)
        )
        assert state == {}
        for key, row in zip(sorted(who), group.tensors["model"], strict=True):
            self.sent[key] = Sent(row.clone(), self.get_version()[key[0]])
        return loss

    def run_slot(self, who: list[tuple[int, int]]) -> list[int]:
        """Let these arrive together; returns their staleness."""
        cohort = self.all.take(torch.tensor([5 * s + k for s, k in sorted(who)]))
        now, sent = self.get_version(), [self.sent.pop(key) for key in sorted(who)]
        late = [now[s] - one.version for (s, _), one in zip(sorted(who), sent, strict=True)]
        cohort = self.reweight(replace(cohort, staleness=torch.tensor(late)))
        rows = torch.stack([one.row for one in sent])
        received = receive_exactly((Group({"model": rows}),), cohort)
        before = {name: block.clone() for name, block in self.server.items()}
        old = self.server
        self.server = self.method.update_server(old, received, self.make_context(cohort))
        for name, block in before.items():
            assert torch.equal(old[name], block)
            assert self.server[name].data_ptr() != old[name].data_ptr()
            assert self.server[name].dtype == block.dtype
        self.slots += 1
        return late

    def draw_batches(self, s: int, k: int, draw: int) -> Any:
        work = self.data.select_cohort(draw, self.all.take(torch.tensor([5 * s + k])))
        return [minibatch(work.draw_batch(step), 0) for step in range(STEPS)]

    def get_model(self, s: int, block: str = "model") -> Params:
        return to_arrays(MODEL, unflatten(self.server[block], MODEL.shapes), s)


def assert_close(ours: Params, theirs: Params) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def list_deliveries(slots: int, most: int = 1) -> list[list[tuple[int, int]]]:
    """Draw devices of each trial, slot by slot, 1 to `most` of them."""
    rng = np.random.default_rng(3)
    out = []
    for _ in range(slots):
        who = []
        for s in range(2):
            chosen = rng.choice(5, rng.integers(1, most + 1), replace=False)
            who += [(s, int(k)) for k in chosen]
        out.append(sorted(who))
    return out
