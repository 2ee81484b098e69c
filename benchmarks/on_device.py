"""How long one image takes in the runtimes of a device: dense and low-rank models, exported.

pip install 'otafl[onnx,litert]'
python benchmarks/on_device.py > benchmarks/on_device.md
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from inference_time import build_factored, chain
from page import header, name_machine, orthonormal_point, row, three
from torch import nn
from torch.utils.benchmark import Timer

from otafl.exporting import deployment, formats

if TYPE_CHECKING:
    from otafl.exporting.formats import Run

NETWORKS = ((784, 256, 256, 10), (784, 1024, 1024, 10))
RANKS = (4, 16, 64)
REPEATS, CALLS = 25, 20


def build(widths: Sequence[int]) -> dict[str, nn.Module]:
    """Return a dense model, low-rank ones, and the dense one again; weights are random."""
    sides = list(itertools.pairwise(widths))
    dense = chain([nn.Linear(m, n) for m, n in sides]).eval()
    low_rank = {
        f"R = {rank}": build_factored(
            sides, [orthonormal_point(m, n, min(rank, m, n)) for m, n in sides]
        )
        for rank in RANKS
    }
    return {"dense": dense} | low_rank | {"dense, again": dense}


def load(model: nn.Module, size: int, folder: Path) -> dict[str, Run]:
    """Return what runs the model in each runtime; raise ValueError if their scores differ."""
    runs = {"PyTorch": formats.make_run_fn(model)}
    for target in ("onnx", "litert"):
        runtime, suffix, write = deployment.FORMATS[target]
        run = write(formats.ModelSource(model, (size,)), folder / f"model{suffix}")
        assert run is not None
        runs[runtime] = run
    x = np.random.default_rng(0).normal(size=(1, size)).astype(np.float32)
    scores = [run(x) for run in runs.values()]
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], rtol=1e-4, atol=1e-4)
    return runs


def measure(runs: Mapping[str, Run], size: int) -> dict[str, list[float]]:
    """Time one image on one thread, us by model and repeat; the models take turns."""
    x = np.zeros((1, size), np.float32)
    timers = {name: Timer("run(x)", globals={"run": run, "x": x}) for name, run in runs.items()}
    for timer in timers.values():
        timer.timeit(CALLS)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, timer in timers.items():
            found[name].append(1e6 * timer.timeit(CALLS).mean)
    return found


def main() -> None:
    torch.set_num_threads(1)
    print("# One image on a device: dense and low-rank models\n")
    print(
        "Made by `python benchmarks/on_device.py`. Models of random weights are exported, and\n"
        "score one image on one thread. They take turns. A cell has the median time in µs\n"
        "and the dense model's time over it, as the median and the middle half of 25 repeats.\n"
    )
    print(f"{name_machine()}, float32\n")
    for widths in NETWORKS:
        models = build(widths)
        with tempfile.TemporaryDirectory() as folder:
            runs = {name: load(model, widths[0], Path(folder)) for name, model in models.items()}
            times = {
                runtime: measure({name: of[runtime] for name, of in runs.items()}, widths[0])
                for runtime in runs["dense"]
            }
        header("-".join(map(str, widths)), *times)
        for name in models:
            cells = []
            for each in times.values():
                ratios = np.divide(each["dense"], each[name])
                low, middle, high = map(three, np.percentile(ratios, (25, 50, 75)))
                cells.append(f"{three(float(np.median(each[name])))}; {middle} ({low} to {high})")
            row(name, *cells)
        print()


if __name__ == "__main__":
    main()
