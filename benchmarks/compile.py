"""torch.compile on an inner step of FedRLR, beside the operations as they are.

    OMP_NUM_THREADS=1 python benchmarks/compile.py > results/benchmarks_compile.md

Prints a Markdown page. Each row is a process of its own, with a C++ compiler.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from page import duration, header, normal, orthonormal_point, row, three
from rounds import PAIRS, spread
from timing import side_by_side
from torch import Tensor

import otafl
from otafl.factorised import lowrank
from otafl.factorised.lowrank import LowRank, Tangent

DEVICES, RANK = 10, 4
LAYERS = (784, 256), (256, 256), (256, 10)
MODES = "default", "max-autotune-no-cudagraphs"
CALLS = 50
Arguments = tuple[Any, ...]
Step = Callable[..., Any]


def make_retraction() -> tuple[Step, Arguments]:
    """Return FedRLR's retraction of three layers at ten devices."""
    points = [orthonormal_point(m, n, RANK, DEVICES) for m, n in LAYERS]
    steps = [
        Tangent(
            1e-3 * normal(3, DEVICES, RANK, RANK),
            lowrank.project_out(point.u, 1e-3 * normal(4, *point.u.mT.shape).mT),
            lowrank.project_out(point.v, 1e-3 * normal(5, *point.v.mT.shape).mT),
        )
        for point in points
    ]

    def retract(points: list[LowRank], steps: list[Tangent]) -> list[LowRank]:
        return lowrank.retract(points, steps)

    return retract, (points, steps)


def measure(mode: str) -> None:
    """Print the measurements of the step in a mode as JSON."""
    torch.set_num_threads(1)
    step, arguments = make_retraction()
    with torch.inference_mode():
        expected = step(*arguments)
        compiled = torch.compile(step, mode=None if mode == "default" else mode)
        began = time.perf_counter(), time.process_time(), os.times().children_user
        found = compiled(*arguments)
        first_s = time.perf_counter() - began[0]
        cpu_s = time.process_time() - began[1] + os.times().children_user - began[2]
        fast, slow = (repeat(call, arguments) for call in (compiled, step))
        pair = side_by_side(fast, slow, PAIRS, time.process_time)
    out = {
        "first": f"{three(first_s)} s ({three(cpu_s)} s of processors)",
        "eager": duration(pair.slow_s / CALLS),
        "compiled": duration(pair.fast_s / CALLS),
        "ratio": spread(pair),
        "pays": pair.slow_s > pair.fast_s and cpu_s * CALLS / (pair.slow_s - pair.fast_s),
        "equal": all(map(torch.equal, list_tensors(found), list_tensors(expected))),
    }
    print(json.dumps(out))


def repeat(call: Step, arguments: Arguments) -> Callable[[], None]:
    """Return a function that makes many calls."""

    def run() -> None:
        for _ in range(CALLS):
            call(*arguments)

    return run


def list_tensors(found: Any) -> list[Tensor]:
    """List the tensors of a nested result."""
    return [found] if isinstance(found, Tensor) else [t for one in found for t in list_tensors(one)]


def main() -> None:
    """Print the page."""
    print("# torch.compile on an inner step\n")
    command = "python benchmarks/compile.py > results/benchmarks_compile.md"
    print(f"Made by `OMP_NUM_THREADS=1 {command}`.")
    print("The step is FedRLR's retraction of 784-256-256-10 at rank 4 and ten devices.\n")
    print("The first call traces, generates C++ and calls the compiler; with a warm cache it")
    print("finds the result of an earlier process. Its time is that of the clock, on a machine")
    print("that other programs use, and that of processors, without compilers that torch leaves")
    print("running. Calls are 11 alternating pairs of 50 on one thread, in processor time;")
    print("ratios are medians with their range. A step pays after as many calls as save the")
    print("first call.\n")
    print(f"torch {torch.__version__}, otafl {otafl.__version__}\n")
    names = "first call", "eager", "compiled", "eager / compiled", "pays after calls", "same bits"
    header("mode", "cache", *names)
    for mode in MODES:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
            for cache in ("cold", "warm"):
                process = [sys.executable, __file__, mode]
                done = subprocess.run(
                    process, capture_output=True, text=True, env=environment, check=True
                )
                found = json.loads(done.stdout.splitlines()[-1])
                pays = f"{found['pays']:,.0f}" if found["pays"] else "never"
                cells = (found[name] for name in ("first", "eager", "compiled", "ratio"))
                row(mode, cache, *cells, pays, "yes" if found["equal"] else "no")


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) > 1 else main()
