"""What a run costs by its size: devices, population, trials, parameters, antennas, sweep points.

    OMP_NUM_THREADS=1 python benchmarks/scale.py --figure results/pictures/scale.png \
        > benchmarks/scale.md
    OMP_NUM_THREADS=1 python benchmarks/scale.py --small       # to try it
    OMP_NUM_THREADS=1 python benchmarks/scale.py --axes trials antennas

Each size runs in a process of its own on one thread. Prints a Markdown page.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from page import header, name_machine, row, three

import otafl
from otafl.data import DataSet
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario

ROUNDS, LONG_S = 7, 5.0
"""Rounds that are timed, or fewer if they have taken so many processor seconds."""


class Axis(NamedTuple):
    """Sizes to measure, and the scenario of a size."""

    title: str
    sizes: tuple[int, ...]
    make: Callable[[int], dict[str, Any]]
    about: str


def crowd(samples: int) -> DataSet:
    """Return samples of sixteen numbers; the largest of the first four is the class."""
    draw = np.random.default_rng(0)
    x, test = (draw.standard_normal((n, 16), dtype=np.float32) for n in (samples, 1000))
    return DataSet(x, x[:, :4].argmax(1), test, test[:, :4].argmax(1), classes=4)


def scenario(**sections: Any) -> dict[str, Any]:
    """The base of all axes: ten devices, a perceptron 16-16-4, Rayleigh fading, GBMA."""
    base = {
        "name": "scale",
        "data": {"name": "scale:crowd", "samples": 2_000, "partition": "iid"},
        "model": {"name": "mlp", "hidden": [16]},
        "channel": {"name": "rayleigh", "snr_db": 20},
        "power": "gbma",
        "devices": {"count": 10},
        "training": {"rounds": 1000, "local_steps": 1, "batch_size": 1},
        "engine": {"device": "cpu", "threads": 1, "memory_gb": 8},
    }
    return {**base, **sections}


def with_population(count: int, participants: int | None = None, **sections: Any) -> dict[str, Any]:
    """A sample for each device."""
    data = {"name": "scale:crowd", "samples": max(2_000, count), "partition": "iid"}
    devices = {"count": count, "participants": participants}
    return scenario(data=data, devices=devices, **sections)


def with_parameters(count: int) -> dict[str, Any]:
    """A hidden layer on 16 inputs and 4 classes: 21 parameters a unit, and 4."""
    return scenario(model={"name": "mlp", "hidden": [max(1, count // 21)]}, devices={"count": 4})


POPULATIONS = (10**3, 10**4, 10**5, 10**6)
FEEDBACK = {"name": "topk", "keep": 0.1, "error_feedback": True}
AXES = {
    "devices": Axis(
        "devices", (10, 100, 1_000, 10_000), with_population, "All devices take part in each round."
    ),
    "population": Axis(
        "population",
        POPULATIONS,
        lambda count: with_population(count, 20),
        "Twenty devices of the population take part in a round.",
    ),
    "scaffold": Axis(
        "population, SCAFFOLD",
        POPULATIONS,
        lambda count: with_population(count, 20, algorithm="scaffold", codec=FEEDBACK),
        "The largest tenth of each update, with error feedback: devices keep controls and errors.",
    ),
    "ditto": Axis(
        "population, Ditto",
        POPULATIONS,
        lambda count: with_population(count, 20, algorithm="ditto"),
        "Each device keeps a personal model.",
    ),
    "trials": Axis(
        "trials", (1, 10, 100, 1_000, 10_000), lambda count: scenario(trials=count), "One stack."
    ),
    "parameters": Axis(
        "parameters", (10**3, 10**4, 10**5, 10**6, 10**7), with_parameters, "Four devices."
    ),
    "antennas": Axis(
        "antennas",
        (1, 4, 16, 64, 256),
        lambda count: scenario(
            channel={"name": "rayleigh", "snr_db": 20, "antennas": count},
            receiver="mrc",
            power="ci",
            devices={"count": 100},
        ),
        "A hundred devices, maximum ratio combining.",
    ),
}
NOTE = """\
No axis has a knee beyond proportional cost, except the step to 10 million parameters, whose arrays
outgrow the processor's cache. A million devices, of which twenty take part, add less than 0.4 GB to
the imports, whether they keep state or not. A sweep of 100,000 points takes 43 kB a point. Opening,
plotting and reporting it takes 12 s together.
"""
"""What the page of a run says first; check it against the numbers of the next one."""

POINTS = (10, 100, 1_000, 10_000, 100_000)
SWEPT = {"devices": {"count": 2}, "training": {"rounds": 1, "batch_size": 1, "eval_samples": 40}}


def get_megabytes() -> float:
    """Return the most memory that the process has had at a time."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_rounds(axis: str, size: int) -> dict[str, float]:
    """Measure set-up, a round and memory of a size in this process, in processor seconds."""
    points = expand(load_scenario(AXES[axis].make(AXES[axis].sizes[0])))
    Engine(assemble(points, range(1))).run_round(0)  # imports what all sizes need
    imported_mb, began_s = get_megabytes(), time.process_time()
    loaded = load_scenario(AXES[axis].make(size))
    engine = Engine(assemble(expand(loaded), range(loaded.trials)))
    made_s = time.process_time()
    engine.run_round(0)
    times: list[float] = []
    while len(times) < ROUNDS and (not times or sum(times) < LONG_S):
        start = time.process_time()
        engine.run_round(1 + len(times))
        times.append(time.process_time() - start)
    return {
        "set_up_s": made_s - began_s,
        "round_s": statistics.median(times),
        "shortest_s": min(times),
        "longest_s": max(times),
        "own_mb": get_megabytes() - imported_mb,
    }


def make_sweep(count: int) -> dict[str, Any]:
    """A grid of step sizes and SNRs with about so many points."""
    side = math.isqrt(count)
    rates = [round(1e-4 * (index + 1), 6) for index in range(count // side)]
    snrs = [round(0.1 * index, 3) for index in range(side)]
    return scenario(**SWEPT, sweep={"algorithm.learning_rate": rates, "channel.snr_db": snrs})


def measure_sweep(size: int) -> dict[str, float]:
    """Measure reading, running, opening, plotting and reporting a sweep of `size` points."""
    otafl.run(scenario(**SWEPT))  # imports
    began = time.process_time()
    loaded = load_scenario(make_sweep(size))
    read = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "points.nc"
        otafl.run(loaded, file)
        ran = time.process_time()
        otafl.open_results(file)
        opened = time.process_time()
        plotted = measure_command("plot", str(file), "-o", str(Path(folder) / "points.png"))
        reported = measure_command("report", str(file), "-o", str(Path(folder) / "points.html"))
        stored_mb = file.stat().st_size / 2**20
    return {
        "read_s": read - began,
        "run_s": ran - read,
        "open_s": opened - ran,
        "plot_s": plotted,
        "report_s": reported,
        "stored_mb": stored_mb,
        "own_mb": get_megabytes(),
    }


def measure_command(*words: str) -> float:
    """Return the processor seconds of a command of otafl, with its start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "otafl", *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_alone(axis: str, size: int) -> dict[str, float]:
    """Measure a size in a process of its own."""
    command = [sys.executable, __file__, "--measure", axis, str(size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def format_slope(sizes: tuple[int, ...], times: list[float], at: int) -> str:
    """Return the exponent of time in size from the size before; nothing for the first."""
    if not at:
        return ""
    growth = math.log(times[at] / times[at - 1]) / math.log(sizes[at] / sizes[at - 1])
    return f"{growth:.2f}"


def format_seconds(seconds: float) -> str:
    """Return seconds, or milliseconds below one second."""
    return f"{three(seconds)} s" if seconds >= 1 else f"{three(1e3 * seconds)} ms"


def print_rounds(axis: str, sizes: tuple[int, ...]) -> list[float]:
    """Print the table of an axis, and return the seconds of a round at each size."""
    print(f"\n## {AXES[axis].title[0].upper()}{AXES[axis].title[1:]}\n\n{AXES[axis].about}\n")
    header(AXES[axis].title, "set-up", "a round", "range", "slope", "memory")
    times: list[float] = []
    for at, size in enumerate(sizes):
        found = measure_alone(axis, size)
        times.append(found["round_s"])
        row(
            f"{size:,}",
            format_seconds(found["set_up_s"]),
            format_seconds(found["round_s"]),
            f"{three(1e3 * found['shortest_s'])} to {three(1e3 * found['longest_s'])} ms",
            format_slope(sizes, times, at),
            f"{found['own_mb']:,.0f} MB",
        )
    return times


def print_sweeps(sizes: tuple[int, ...]) -> list[float]:
    """Print the table of sweeps, and return the seconds of a sweep at each size."""
    print(
        "\n## Sweep points\n\nTwo devices, one round, one trial; points differ in SNR and step.\n"
    )
    shown = ("read", "run", "a point", "slope", "open", "plot", "report", "file")
    header("points", *shown, "memory of the run")
    times: list[float] = []
    for at, size in enumerate(sizes):
        found = measure_alone("points", size)
        times.append(found["read_s"] + found["run_s"])
        row(
            f"{size:,}",
            *(format_seconds(found[f"{name}_s"]) for name in ("read", "run")),
            f"{three(1e3 * times[at] / size)} ms",
            format_slope(sizes, times, at),
            *(format_seconds(found[f"{name}_s"]) for name in ("open", "plot", "report")),
            f"{found['stored_mb']:.1f} MB",
            f"{found['own_mb']:,.0f} MB",
        )
    return times


def draw(found: dict[str, tuple[tuple[int, ...], list[float]]], path: Path) -> None:
    """Draw seconds by size, an axis a line, beside proportional growth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for (name, (sizes, times)), mark in zip(found.items(), "os^Dv<>p", strict=False):
        axes.loglog(sizes, times, marker=mark, label=name)
    axes.loglog([1e3, 1e7], [3e-3, 3e1], color="0.6", linestyle=":", label="proportional")
    axes.set_xlabel("Devices, population, trials, parameters, antennas or sweep points")
    axes.set_ylabel("Processor seconds of a round, or of a sweep")
    axes.grid(visible=True, which="major", color="0.9")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))  # beside the axes
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print the page, or measure one size of an axis."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", nargs=2, metavar=("AXIS", "SIZE"))
    parser.add_argument("--axes", nargs="*", default=[*AXES, "points"])
    parser.add_argument("--small", action="store_true", help="only the first two sizes of an axis")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    if given.measure:
        axis, size = given.measure[0], int(given.measure[1])
        print(json.dumps(measure_sweep(size) if axis == "points" else measure_rounds(axis, size)))
        return
    print("# What a run costs by its size\n")
    print(NOTE)
    print("Made by `OMP_NUM_THREADS=1 python benchmarks/scale.py --figure")
    print("results/pictures/scale.png > benchmarks/scale.md`. Each size ran in a process of")
    print("its own on one thread. Times are processor seconds, of a round the median of up to")
    print(
        f"{ROUNDS} with the range. A slope is the exponent of time in size from the row above: 1 is"
    )
    print("proportional, 0 is free. Memory is what the size adds to the imports.\n")
    print(name_machine())
    stop = 2 if given.small else None
    found = {}
    for axis in given.axes:
        sizes = (POINTS if axis == "points" else AXES[axis].sizes)[:stop]
        times = print_sweeps(sizes) if axis == "points" else print_rounds(axis, sizes)
        found["sweep points" if axis == "points" else axis] = sizes, times
    if given.figure:
        draw(found, given.figure)
        print(f"\n![Processor seconds by size](../results/pictures/{given.figure.name})")


if __name__ == "__main__":
    main()
