"""Rounds with local work in epochs beside rounds with as many steps in the mean.

    OMP_NUM_THREADS=1 python benchmarks/local_epochs.py

Prints a line for each case: the different numbers of steps, and the ratio of the processor seconds.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario

ROUNDS = 11
SKEW = {"name": "dirichlet", "alpha": 0.3}
DIGITS = {"name": "digits", "partition": SKEW}
FASHION = {"name": "fashion_mnist", "train_samples": 6000, "partition": SKEW}
WIDE = {"name": "mlp", "hidden": [100]}
CASES: list[tuple[str, dict[str, Any], int]] = [
    ("digits, 10 devices, 3 trials", {"data": DIGITS, "model": "mlp"}, 3),
    ("digits, 10 devices, 10 trials", {"data": DIGITS, "model": "mlp"}, 10),
    ("fashion_mnist, 10 devices, 1 trial", {"data": FASHION, "model": WIDE}, 1),
    ("fashion_mnist, 20 devices, 3 trials", {"data": FASHION, "model": WIDE, "devices": 20}, 3),
]


def make_engine(case: dict[str, Any], trials: int, **training: Any) -> Engine:
    """Return the engine of a case after two rounds, which are not counted."""
    tree = {"name": "epochs", **case, "devices": {"count": case.get("devices", 10)}}
    tree |= {"training": {"batch_size": 20, **training}, "engine": {"device": "cpu", "threads": 1}}
    engine = Engine(assemble(expand(load_scenario(tree)), range(trials)))
    for t in range(2):
        engine.run_round(t)
    return engine


def main() -> None:
    """Print the cases."""
    for name, case, trials in CASES:
        epochs = make_engine(case, trials, local_epochs=1)
        steps = np.ceil(epochs.parts.samples.sample_share.cpu().numpy() / 20)
        equal = make_engine(case, trials, local_steps=round(float(steps.mean())))
        ratios = []
        for t in range(2, 2 + ROUNDS):
            spent_s = []
            for engine in (epochs, equal):
                began_s = time.process_time()
                engine.run_round(t)
                spent_s.append(time.process_time() - began_s)
            ratios.append(spent_s[0] / spent_s[1])
        print(
            f"{name}: {len(np.unique(steps))} numbers of steps from {steps.min():.0f} to "
            f"{steps.max():.0f}, mean {steps.mean():.1f}; ratio {np.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
