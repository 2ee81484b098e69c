"""Holds the engine's rounds of pFedMe, Per-FedAvg and pFedBreD's strategies against users and a
server written as the published programs are, on the minibatches that the engine has drawn:
parameters, personal models and memories after every round, to 1e-12.

Six devices of unequal shares train, three of them are aggregated, in two trials.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from contract.small import engine
from support.marks import every_other_is_fast
from torch import Tensor
from twins import personal_users as users

from otafl.core.contracts import Batch, Cohort
from otafl.engine.engine import Engine
from otafl.models.base import unflatten

pytestmark = [pytest.mark.exact, pytest.mark.twin]

ROUNDS, STEPS, DEVICES = 3, 3, 6


@dataclass(frozen=True)
class Rates:
    penalty: float = 12.0
    alpha: float = 0.03
    alpha_m: float = 0.02
    eta: float = 0.3
    eta_alpha: float = 0.2
    beta: float = 1.6
    prox_steps: int = 4


RATES = Rates()

BRED = {"name": "pfedbred", "eta": RATES.eta, "eta_alpha": RATES.eta_alpha}
PROX = {"penalty": RATES.penalty, "prox_steps": RATES.prox_steps}
METHODS: dict[str, dict[str, Any]] = {
    "pfedme": {"name": "pfedme", **PROX},
    "per_fedavg": {"name": "per_fedavg"},
    "lg": BRED | PROX | {"strategy": "lg"},
    "meg": BRED | PROX | {"strategy": "meg"},
    "meg paper": BRED | PROX | {"strategy": "meg", "variant": "paper"},
    "mh": BRED | PROX | {"strategy": "mh"},
    "mh paper": BRED | PROX | {"strategy": "mh", "variant": "paper"},
    "c2": BRED | PROX | {"strategy": "mh", "variant": "c2"},
}
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "hidden": [7, 5]},
    "softmax_regression": {"name": "softmax_regression", "start": "uniform"},
}

Drawn = dict[tuple[int, int], dict[int, dict[int, users.Sample]]]
"""(trial, device) -> local step -> draw -> minibatch."""


class Recorder:
    """The work of a round, of which each minibatch that is asked for is written down."""

    def __init__(self, work: Any, cohort: Cohort, drawn: Drawn) -> None:
        self._work, self._cohort, self._drawn = work, cohort, drawn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def draw_batch(self, step: int, draw_index: int = 0) -> Batch:
        batch: Batch = self._work.draw_batch(step, draw_index)
        shape = batch.y.shape
        even = torch.full(shape, 1.0 / shape[1], dtype=torch.float64)
        share = even if batch.weight is None else batch.weight
        for row, who in enumerate(zip(*map(Tensor.tolist, self._who), strict=True)):
            with torch.inference_mode(False):  # tensors that autograd takes
                rows = (part[row].clone() for part in (batch.x, batch.y, share))
                sample = users.Sample(*rows)
            self._drawn[who].setdefault(step, {})[draw_index] = sample
        return batch

    @property
    def _who(self) -> tuple[Tensor, Tensor]:
        return self._cohort.trial, self._cohort.device


def recorded(one: Engine) -> tuple[Drawn, list[Cohort]]:
    """What the next rounds draw and who takes part in them, written to as they are run."""
    drawn: Drawn = defaultdict(dict)
    cohorts: list[Cohort] = []
    local, select = one.parts.algorithm.run_local_update, one.select_cohort

    def noted(broadcast: Any, devices: Any, context: Any) -> Any:
        work: Any = Recorder(context.local_data, context.cohort, drawn)
        return local(broadcast, devices, replace(context, local_data=work))

    def chosen(*given: Any) -> Cohort:
        cohorts.append(select(*given))
        return cohorts[-1]

    one.parts.algorithm.run_local_update = noted  # type: ignore[method-assign]
    one.select_cohort = chosen  # type: ignore[method-assign]
    return drawn, cohorts


def samples_of(draws: dict[int, users.Sample]) -> list[users.Sample]:
    """Of a local step: that of the gradient inside the prior or the meta-step, then the others'."""
    return [draws[draw] for draw in sorted(draws, reverse=True)]


def started(method: str, model: str) -> Engine:
    return engine(
        {
            "algorithm": {
                **METHODS[method],
                "learning_rate": RATES.alpha_m,
                "personal_learning_rate": RATES.alpha,
                "server_learning_rate": RATES.beta,
            },
            "model": MODELS[model],
            "data": {"name": "digits", "train_samples": 120, "partition": {"name": "dirichlet"}},
            "devices": {"count": DEVICES, "senders": 3},
            "training.local_steps": STEPS,
            "training.batch_size": 12,
            "transport": "ideal",
            "engine.dtype": "float64",
            "trials": 2,
        }
    )


class Trial:
    """The users and the server of one of an engine's trials."""

    def __init__(self, one: Engine, number: int) -> None:
        self.engine, self.number = one, number
        self.shapes = one.parts.algorithm.model.shapes
        self.w = self.server()
        self.users = [users.User(self.w, users.perceptron) for _ in range(DEVICES)]
        self.counts = one.parts.samples.sample_share[number].tolist()

    def server(self) -> users.Tensors:
        """The engine's global model."""
        flat = self.engine.server["model"][self.number, None]
        return [block[0].clone() for block in unflatten(flat, self.shapes).values()]

    def train(self, cohort: Cohort, drawn: Drawn, method: str) -> None:
        """Let the users train on what the engine has drawn, and the server aggregate."""
        own = (cohort.trial == self.number).nonzero()[:, 0]
        sending = cohort.device[own[cohort.transmit_mask[own]]].tolist()
        assert len(own) == DEVICES
        assert len(sending) == 3
        local = {}
        for device in cohort.device[own].tolist():
            draws = drawn[self.number, device]
            steps = [samples_of(draws[step]) for step in range(STEPS)]
            local[device] = self.users[device].train(self.w, steps, method, RATES)
        counts = [self.counts[device] for device in sending]
        self.w = users.aggregated(self.w, [local[k] for k in sending], counts, RATES.beta)

    def apart(self) -> float:
        """The largest difference from what the engine keeps."""
        kept, pairs = self.engine.devices.get_all(), list(zip(self.server(), self.w, strict=True))
        for prefix, state in (("personal", "theta"), ("last", "last")):
            for place, name in enumerate(self.shapes):
                ours = kept.get(f"{prefix}.{name}")
                for device in range(DEVICES if ours is not None else 0):
                    theirs = getattr(self.users[device], state)[place]
                    pairs.append((kept[f"{prefix}.{name}"][self.number, device], theirs))
        return max(float((a - b).abs().max()) for a, b in pairs)


def farthest(method: str, model: str) -> float:
    """The largest difference over some rounds."""
    one = started(method, model)
    trials, (drawn, cohorts) = [Trial(one, s) for s in range(2)], recorded(one)
    start, worst = [trial.w for trial in trials], 0.0
    for t in range(ROUNDS):
        drawn.clear()
        one.run_round(t)
        for trial in trials:
            trial.train(cohorts[t], drawn, method)
            worst = max(worst, trial.apart())
    moved = [float((trial.w[0] - w[0]).abs().max()) for trial, w in zip(trials, start, strict=True)]
    assert min(moved) > 1e-3
    return worst


@pytest.mark.parametrize(("method", "model"), every_other_is_fast(METHODS, MODELS))
def test_rounds_are_those_of_the_published_programs(method: str, model: str) -> None:
    assert farthest(method, model) < 1e-12
