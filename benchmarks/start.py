"""What it costs to begin: processor seconds from the start of `otafl run` to its first round, and
of the whole run of two rounds, for an ideal uplink, flat fading and a channel of Sionna's. Each run
is a process of its own. Prints a Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/start.py
    OMP_NUM_THREADS=1 python benchmarks/start.py --beside ../another/checkout
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from page import header, row

HERE = Path(__file__).resolve().parent.parent

CASES: dict[str, dict[str, Any]] = {
    "ideal": {"transport": "ideal"},
    "flat fading": {"transport": "over_the_air", "channel": "rayleigh"},
    "tdl-a, of Sionna's tables": {"transport": "over_the_air", "channel": "tdl-a"},
}

RUN = """
import time
from otafl.cli import main

try:
    main()
finally:
    print(time.process_time())
"""

TO_FIRST_ROUND = """
import os, time
from otafl.cli import running

check_writable = running.check_writable  # what is called before anything is put together

def ready(folder):
    from otafl.engine.engine import Engine

    check_writable(folder)
    Engine.run_round = stop

def stop(*_):
    print(time.process_time(), flush=True)
    os._exit(0)

running.check_writable = ready
"""


def scenario(case: str) -> dict[str, Any]:
    """Two rounds of a small perceptron on the digits."""
    training = {"rounds": 2, "local_steps": 2}
    return {"name": "start", "data": "digits", "model": "mlp", "training": training, **CASES[case]}


def measure_start(checkout: Path, case: str) -> tuple[float, float]:
    """Processor seconds to the first round, and of a whole run, of one checkout."""
    return _child(checkout, case, TO_FIRST_ROUND + RUN), _child(checkout, case, RUN)


def _child(checkout: Path, case: str, code: str) -> float:
    """Processor seconds that a run prints last."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "start.yaml").write_text(json.dumps(scenario(case)))
        out = subprocess.run(
            [sys.executable, "-c", code, "run", "start.yaml", "--quiet"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return float(out.split()[-1])


def main() -> None:
    """Run the cases of this checkout, in turns with those of another one, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--beside", type=Path, help="another checkout, which is run in turns")
    parser.add_argument("--runs", type=int, default=5, help="runs of each, of which the median")
    options = parser.parse_args()
    checkouts = [HERE] if options.beside is None else [HERE, options.beside.resolve()]
    kinds = ("to the first round", "whole run")
    beside = [] if options.beside is None else ["beside", "ratio"]
    header("uplink", *(column for kind in kinds for column in (kind, *beside)))
    for case in CASES:
        runs = [[measure_start(one, case) for one in checkouts] for _ in range(options.runs)]
        cells = []
        for kind in range(len(kinds)):
            seconds = [statistics.median(one[kind] for one in of) for of in zip(*runs, strict=True)]
            cells += [f"{value:.2f} s" for value in seconds]
            cells += [f"{seconds[0] / seconds[1]:.2f}"] if beside else []
        row(case, *cells)


if __name__ == "__main__":
    main()
