"""What a GPU does for stacks of 1 to 10,000 trials: rounds a second beside the CPU of the same
machine, the share of what its matrix products can do, memory beside the bound, and how often the
host waits for it. Prints a Markdown page, in at most ten minutes.

    python benchmarks/gpu.py > benchmarks/gpu.md
    python benchmarks/gpu.py --device cpu --stacks 1 2 --rounds 1 --small      # to try it
"""

from __future__ import annotations

import argparse
import functools
import gc
import platform
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from page import header, row, three

import otafl
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.results.origins import get_device_name
from otafl.running.memory import estimate_trial, is_out_of_memory
from otafl.scenario import Point, expand, load_scenario

STACKS = (1, 10, 100, 1_000, 10_000)
WARM_UP = 5
"""Rounds in which libraries start, and graphs are recorded."""

CASES: dict[str, dict[str, Any]] = {
    "FedAvg, softmax regression on digits, K = 10, 1 step of 20": {
        "data": {"name": "digits"},
        "model": "softmax_regression",
        "algorithm": "fedavg",
        "training": {"batch_size": 20},
    },
    "FedRLR, 784-256-256-10, K = 10, rank 4": {
        "model": {"name": "mlp", "hidden": [256, 256]},
        "algorithm": {"name": "fedrlr", "rank": 4},
        "training": {"batch_size": 6},
    },
    "FedAvg, 784-100-10, K = 10, 20 steps of 20": {
        "model": {"name": "mlp", "hidden": [100]},
        "algorithm": "fedavg",
        "training": {"local_steps": 20, "batch_size": 20},
    },
    "pFedBreD mh, 784-100-10, K = 10, 20 steps of 20": {
        "model": {"name": "mlp", "hidden": [100]},
        "algorithm": {"name": "pfedbred", "strategy": "mh"},
        "training": {"local_steps": 20, "batch_size": 20},
    },
    "TDPFed, 784-100-10, K = 10, 20 steps of 20": {
        "model": {"name": "mlp", "hidden": [100]},
        "algorithm": "tdpfed",
        "training": {"local_steps": 20, "batch_size": 20},
    },
    "FedAvg, the CNN of the FedAvg paper, K = 10, 6 steps of 10": {
        "model": "cnn",
        "algorithm": "fedavg",
        "training": {"local_steps": 6, "batch_size": 10},
    },
}

AIMS = {
    "FedRLR, 784-256-256-10, K = 10, rank 4": 10_000,
    "FedAvg, 784-100-10, K = 10, 20 steps of 20": 8_000,
}
"""Trial-rounds a second of a GPU that are aimed at with 1,000 trials."""


def points(case: str, device: str, trials: int, small: bool, graphs: bool = True) -> list[Point]:
    """The one point of a case, of so many trials, on a processor."""
    tree = {
        "name": "gpu",
        "data": "fashion_mnist",
        "channel": {"name": "rayleigh", "snr_db": 20},
        "power": "gbma",
        "devices": {"count": 10},
        "trials": trials,
        "engine": {"device": device, "cuda_graphs": graphs},
        **CASES[case],
    }
    if small:  # the same on digits, of 8 x 8 pixels
        tree["data"] = {"name": "digits", "train_samples": 200}
    tree["training"] = {**tree["training"], "rounds": 100_000}
    return expand(load_scenario(tree))


def wait(device: str) -> None:
    """Let the device finish what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(device: str, call: Callable[[], object]) -> float:
    """How long a call keeps host and device busy."""
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - start


@functools.cache
def peak_flops(device: str, side: int) -> float:
    """Operations a second of products of float32 matrices, the best of six: the roofline."""
    a, b = (torch.rand(side, side, device=device) for _ in range(2))
    return 2.0 * side**3 / min(seconds(device, lambda: a @ b) for _ in range(6))


def waits(engine: Engine, t: int) -> int | None:
    """How often the host waits for the GPU in a round, as torch counts it; None without a GPU."""
    if engine.sample_share.device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            engine.run_round(t)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(one.message) for one in caught)


def peak_bytes(device: str) -> int:
    """The most bytes in use since the stack began; on the CPU, since the program did."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Measured:
    """Rounds of one stack: seconds of a round, operations of its devices, bytes, waits."""

    def __init__(
        self, case: str, device: str, trials: int, rounds: int, small: bool, graphs: bool = True
    ) -> None:
        began_s = time.perf_counter()
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        engine = Engine(assemble(points(case, device, trials, small, graphs), range(trials)))
        for t in range(WARM_UP):
            engine.run_round(t)
        timed = range(WARM_UP, WARM_UP + rounds)
        took = [seconds(device, functools.partial(engine.run_round, t)) for t in timed]
        self.round_s = sorted(took)[rounds // 2]
        with torch.inference_mode():
            cohort = engine.select_cohort(None, timed.stop)
        self.flops = float(engine.parts.submodels.count_flops(cohort).sum())
        self.bytes = peak_bytes(device)
        self.waits = waits(engine, timed.stop)
        self.all_s = time.perf_counter() - began_s


def try_stack(
    case: str, device: str, trials: int, rounds: int, small: bool, graphs: bool = True
) -> Measured | None:
    """A stack's figures; None where memory is too short for it."""
    try:
        return Measured(case, device, trials, rounds, small, graphs)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        gc.collect()


def seconds_left(asked: argparse.Namespace) -> float:
    """About the most seconds for the next stack: as asked for, or what is left of the minutes."""
    return min(asked.seconds, asked.until_s - time.perf_counter())


def table(case: str, asked: argparse.Namespace) -> None:
    """A row a stack: the device, the CPU beside it, and the memory that is estimated beforehand."""
    print(f"\n## {case}\n")
    if case in AIMS:
        print(f"The aim is {AIMS[case]:,} trial-rounds a second at 1,000 trials.\n")
    header(
        "trials",
        f"trial-rounds/s, {asked.device}",
        "ms a round",
        "over no graphs",
        "over the CPU",
        "share of the roofline",
        "memory",
        "estimate",
        "waits a round",
    )
    one = points(case, asked.device, 2, asked.small)[0].scenario
    trial_gb = estimate_trial(one) / 1e9
    last_s = dict.fromkeys(("ours", "plain", "cpu"), 0.0)

    def attempt(name: str, trials: int, device: str, graphs: bool) -> Measured | None:
        """A stack's figures, unless it would take too long by the stack before."""
        if last_s[name] * 10 > seconds_left(asked) / (1 if name == "ours" else 4):
            return None
        rounds = max(1, asked.rounds // 5) if name == "cpu" else asked.rounds
        found = try_stack(case, device, trials, rounds, asked.small, graphs)
        last_s[name] = asked.seconds if found is None else found.all_s
        if trials == asked.stacks[0] and found is not None:
            last_s[name] = 0.0  # libraries start in the first one
        return found

    for trials in asked.stacks:
        if last_s["ours"] * 10 > seconds_left(asked):
            row(f"{trials:,}", "not tried", *[""] * 7)
            continue
        ours = attempt("ours", trials, asked.device, True)
        expected_gb = trial_gb * trials
        if ours is None:
            row(f"{trials:,}", "out of memory", *[""] * 5, f"{three(expected_gb)} GB", "")
            continue
        plain = beside = None
        if asked.device != "cpu":
            plain = attempt("plain", trials, asked.device, False)
            beside = attempt("cpu", trials, "cpu", False)
        share = ours.flops / ours.round_s / peak_flops(asked.device, asked.side)
        row(
            f"{trials:,}",
            three(trials / ours.round_s),
            three(1e3 * ours.round_s),
            "" if plain is None else three(plain.round_s / ours.round_s),
            "" if beside is None else three(beside.round_s / ours.round_s),
            f"{100 * share:.2g} %",
            f"{three(ours.bytes / 1e9)} GB",
            f"{three(expected_gb)} GB",
            "" if ours.waits is None else ours.waits,
        )


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--stacks", type=int, nargs="+", default=STACKS, metavar="TRIALS")
    parser.add_argument("--rounds", type=int, default=6, help="timed rounds of a stack")
    parser.add_argument("--side", type=int, default=8192, help="of the roofline's matrices")
    parser.add_argument("--small", action="store_true", help="on digits")
    parser.add_argument("--seconds", type=float, default=30.0, help="about the most for a stack")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no stack begins")
    asked = parser.parse_args()
    asked.until_s = time.perf_counter() + 60.0 * asked.minutes
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.exit(2, "torch sees no GPU; use --device cpu, or a machine with one\n")
    print("# Stacks on a GPU\n")
    print(
        "Made by `python benchmarks/gpu.py > benchmarks/gpu.md`. Times are medians of "
        f"{asked.rounds} rounds after {WARM_UP},\nin float32, over Rayleigh fading with GBMA; "
        "every device takes part. Beside them stand the same rounds without\nCUDA graphs "
        "(`engine.cuda_graphs: false`) and on the CPU of the machine, where they do not take too "
        "long. The\nroofline is the best speed of products of two float32 matrices of "
        f"{asked.side} x {asked.side} on this processor; a round's\noperations are those of the "
        "devices' local work. Memory is the most in use, beside what `engine.memory_gb`\nis "
        "compared with. Waits are the operations of a round in which the host waits for the GPU, "
        "as\ntorch.cuda.set_sync_debug_mode finds them.\n"
    )
    peak = peak_flops(asked.device, asked.side) / 1e9
    print(f"{get_device_name(asked.device)}, {three(peak)} GFLOP/s; CPU {get_device_name('cpu')},")
    print(f"{torch.get_num_threads()} threads, {platform.machine()}; ", end="")
    print(f"torch {torch.__version__}, otafl {otafl.__version__}")
    for case in CASES:
        table(case, asked)


if __name__ == "__main__":
    main()
