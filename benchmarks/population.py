"""What a population costs of which twenty take part: memory and time from a hundred devices to a
million, each size in a process of its own. Prints a Markdown page.

    OMP_NUM_THREADS=1 python benchmarks/population.py > results/benchmarks_population.md
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from page import header, row

import otafl
from otafl.data import DataSet
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder
from otafl.scenario import expand, load_scenario

SIZES = (10**2, 10**3, 10**4, 10**5, 10**6)
ROUNDS = 3
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {"algorithm": "fedavg"},
    "scaffold, topk with error feedback": {
        "algorithm": "scaffold",
        "codec": {"name": "topk", "keep": 0.1, "error_feedback": True},
    },
    "ditto": {"algorithm": "ditto"},
}
TITLES = {
    "fedavg": "FedAvg",
    "scaffold, topk with error feedback": "SCAFFOLD, the largest tenth of each update with error "
    "feedback: controls and memories of the devices",
    "ditto": "Ditto: a personal model of each device, all of them tested",
}


def crowd(samples: int) -> DataSet:
    """Sixteen numbers a sample, of whose first four the largest is the class."""
    draw = np.random.default_rng(0)
    x, test = (draw.standard_normal((n, 16), dtype=np.float32) for n in (samples, 1000))
    return DataSet(x, x[:, :4].argmax(1), test, test[:, :4].argmax(1), classes=4)


def scenario(devices: int, case: str) -> dict[str, Any]:
    """A sample a device, of whom twenty take part in a round; tested after each."""
    return {
        "name": "population",
        "data": {"name": "population:crowd", "samples": devices, "partition": "iid"},
        "model": {"name": "mlp", "hidden": [16]},
        "channel": "rayleigh",
        "devices": {"count": devices, "participants": 20},
        "training": {"rounds": ROUNDS, "local_steps": 5, "batch_size": 1, "eval_every": 1},
        **CASES[case],
    }


def megabytes() -> float:
    """The most memory that the process has had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(devices: int, case: str) -> dict[str, float]:
    """One size, in this process: processor seconds, and MB with what is imported."""
    points = expand(load_scenario(scenario(100, case)))
    assemble(points, [0])  # which imports what all sizes need
    imported_s, imported_mb = time.process_time(), megabytes()
    points = expand(load_scenario(scenario(devices, case)))
    engine = Engine(assemble(points, [0]))
    recorder = Recorder(engine, 1, 1)
    made_s = time.process_time()
    recorder.take_record(0, 0.0)
    first_s = time.process_time()
    for t in range(ROUNDS):
        engine.run_round(t)
        recorder.take_record(t + 1, 0.0)
    done_s = time.process_time()
    rows = max(engine.devices.num_allocated, engine.memory.num_allocated)
    return {
        "imported_s": imported_s,
        "imported_mb": imported_mb,
        "set_up_s": made_s - imported_s,
        "round_s": (done_s - first_s) / ROUNDS,
        "all_s": done_s,
        "all_mb": megabytes(),
        "rows": float(rows),
    }


def measure_alone(devices: int, case: str) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, str(devices), case]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(out.stdout)
    return found


def main() -> None:
    """Print the page, or measure the one size that is asked for."""
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), sys.argv[2])))
        return
    print("# What a large population costs\n")
    print(
        "Made by `OMP_NUM_THREADS=1 python benchmarks/population.py > "
        "results/benchmarks_population.md`.\nTwenty devices of the population take part in each of "
        f"{ROUNDS} rounds over Rayleigh fading, a sample each,\nfive steps on a perceptron 16-16-4 "
        "that is tested after every round. Each size ran in a process of its own\nwith one thread. "
        "Memory is the most that was resident, imports included; times are processor seconds: of\n"
        "putting the run together, of a round with its test, and of the whole process. Rows are "
        "the devices of which\nanything is kept between rounds.\n"
    )
    versions = f"torch {torch.__version__}, otafl {otafl.__version__}"
    print(f"{versions}, Python {platform.python_version()}, {platform.machine()}\n")
    for case, title in TITLES.items():
        print(f"## {title}\n")
        header("devices", "memory", "of it imports", "set-up", "a round", "in all", "rows")
        for devices in SIZES:
            found = measure_alone(devices, case)
            row(
                f"{devices:,}",
                f"{found['all_mb']:.0f} MB",
                f"{found['imported_mb']:.0f} MB",
                f"{found['set_up_s']:.2f} s",
                f"{found['round_s']:.3f} s",
                f"{found['all_s']:.1f} s",
                f"{found['rows']:.0f}",
            )
        print()


if __name__ == "__main__":
    main()
