"""Searches settings with Optuna, a batch of suggestions at a time.

Optuna is asked for a batch, the batch runs as points of one sweep, and Optuna is told what came of
each. Points that differ in stackable keys alone (marked so in the reference) are one stack: they
train as rows of the same tensors. All points share data, initial model, fading and noise, so what
differs is due to the settings. The value of a point is its validation accuracy at the end, mean
over trials.

    python scripts/search_settings.py --budget 64 --batch 16
    python scripts/search_settings.py --budget 32 --compare
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import optuna

import otafl
from otafl.results.end_values import select_end_total

BASE: dict[str, Any] = {
    "name": "search",
    "data": {"name": "digits", "partition": {"name": "dirichlet", "alpha": 0.5}, "validation": 0.2},
    "model": {"name": "mlp", "hidden": [32]},
    "algorithm": {"name": "fedprox"},
    "channel": {"name": "rayleigh", "snr_db": 5},
    "power": {"name": "tci"},
    "devices": {"count": 10},
    "training": {"rounds": 30, "local_steps": 5, "eval_every": 30},
    "trials": 2,
}

SPACE: dict[str, optuna.distributions.BaseDistribution] = {
    "algorithm.learning_rate": optuna.distributions.FloatDistribution(0.01, 3, log=True),
    "algorithm.penalty": optuna.distributions.FloatDistribution(1e-4, 0.3, log=True),
    "power.threshold": optuna.distributions.FloatDistribution(0.01, 1, log=True),
}
"""Keys of a scenario, all stackable: a batch is one stack."""


def evaluate_batch(base: Mapping[str, Any], batch: list[dict[str, Any]]) -> list[float]:
    """Run a batch of settings, dotted key -> value each, and return the value of each."""
    result = otafl.run(otafl.load_scenario({**base, "sweep": {"zip": batch}}))
    accuracy = select_end_total(result, "validation_accuracy").fillna(0.0)  # a trial that diverged
    return [float(one) for one in accuracy.mean("trial")]


def search(
    base: Mapping[str, Any],
    space: Mapping[str, optuna.distributions.BaseDistribution],
    budget: int,
    batch: int,
    seed: int = 0,
) -> optuna.Study:
    """Ask for so many settings in batches, and tell what came of them."""
    # constant_liar: settings of the batch that have no value yet count as bad, so the others of it
    # look elsewhere
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    while len(study.trials) < budget:
        asked = [study.ask(dict(space)) for _ in range(min(batch, budget - len(study.trials)))]
        for trial, value in zip(
            asked, evaluate_batch(base, [one.params for one in asked]), strict=True
        ):
            study.tell(trial, value)
    return study


def compare(base: Mapping[str, Any], budget: int, batch: int, repeats: int = 3) -> None:
    """Time the same number of settings in batches and one by one, in turn, by processor time."""
    search(base, SPACE, 2, 2)  # imports, and what is built once
    ratios = []
    for repeat in range(repeats):
        seconds = {}
        for size in (batch, 1):
            began = time.process_time()
            best = search(base, SPACE, budget, size, repeat).best_value
            seconds[size] = time.process_time() - began
            print(f"batches of {size:3d}: {seconds[size]:6.1f} s of a processor, best {best:.3f}")
        ratios.append(seconds[1] / seconds[batch])
    print(f"one by one takes {statistics.median(ratios):.1f} times as long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--budget", type=int, default=64, help="settings that are tried")
    parser.add_argument("--batch", type=int, default=16, help="settings that run together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", action="store_true", help="time it against one by one")
    parser.add_argument("--hidden", type=int, default=32, help="units of the network")
    options = parser.parse_args()
    base = {**BASE, "model": {"name": "mlp", "hidden": [options.hidden]}}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.compare:
        compare(base, options.budget, options.batch)
        return
    study = search(base, SPACE, options.budget, options.batch, options.seed)
    print(f"best validation accuracy {study.best_value:.3f}")
    for key, value in study.best_params.items():
        print(f"  {key}: {value:.4g}")


if __name__ == "__main__":
    main()
