"""Number of devices that are computed together, chosen for the processor's cache.

The best number depends on the machine, the method and the model. It is measured on local work of
the first round, once for each, if the run is long enough and the machine idle, and kept in the
user's cache. A stack uses the value of its plan, so repeats, workers and resumes are equal bit by
bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pooch
import torch

from otafl import models
from otafl.core.errors import WriteError
from otafl.core.files import write_text
from otafl.core.inputs import MIB, read_text
from otafl.data.shape import read_shape
from otafl.engine.assembly import assemble, select_torch_device
from otafl.engine.engine import Engine
from otafl.engine.local_training import count_rows_within
from otafl.results.environment import get_device_name, get_versions
from otafl.running.duration import bound_seconds
from otafl.running.memory import count_participants, estimate_trial
from otafl.scenario import Point, Scenario, extract_structure

CACHE_DIR = "OTAFL_CACHE_DIR"
"""Environment variable: the folder of the measurements, by default the user's cache."""

CANDIDATES_MB = {"cpu": (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0), "cuda": (256.0, 1024.0, 4096.0)}

SHARE = 0.02
"""Largest share of a run's computing time for the measurement."""

MIN_S = 0.25
"""Time for the measurement below which a run is not measured."""

MAX_S = 10.0
"""Largest time of a measurement."""

ROWS = 64
"""Largest number of devices, of all trials, in a measurement."""

IDLE = 0.5
"""Share of the processors up to which a machine's load counts as idle."""

FASTER = 0.97
"""Share of the time of a smaller size below which a larger one is preferred."""


def choose_chunk_mb(points: Sequence[Point], tell: Callable[[str], None]) -> float | None:
    """Return `engine.chunk_mb` for points of one stack key; None for the default.

    It is the given value, or measured before or now. tell: is called with a new measurement.
    """
    scenario = points[0].scenario
    if scenario.engine.chunk_mb is not None:
        return scenario.engine.chunk_mb
    path, key = get_cache_path(), _make_cache_key(scenario)
    known = _read(path)
    if key in known:
        return known[key]
    runs, shape = len(points) * scenario.trials, read_shape(scenario.data)
    model = models.build(scenario.model, shape.input_shape, shape.classes, scenario.loss)
    budget_s = min(MAX_S, SHARE * runs * bound_seconds(scenario, shape, model))
    if budget_s < MIN_S or is_busy():
        return None
    found = measure_chunk_mb(points, budget_s)
    if found is not None:
        try:
            write_text(path, json.dumps(_read(path) | {key: found}, indent=1))
        except WriteError:
            return None  # the next run would choose again
        name = scenario.algorithm.name
        tell(f"engine.chunk_mb: {found:g} is best here for {name}, measured; kept in {path}")
    return found


def get_cache_path() -> Path:
    """Return the file of the measurements of this machine."""
    return Path(os.environ.get(CACHE_DIR) or pooch.os_cache("otafl")) / "chunks.json"


def is_busy() -> bool:
    """Return whether other programs use this machine's processors, or the load is unknown."""
    try:
        return os.getloadavg()[0] > IDLE * (os.cpu_count() or 1)
    except (OSError, AttributeError):
        return True


def find_fastest(seconds: Iterable[tuple[float, float]]) -> float:
    """Return the size of the shortest time, from pairs (size, time of a device) in increasing size.

    A larger size must be clearly faster.
    """
    best, least = 0.0, float("inf")
    for size, time_s in seconds:
        if time_s < FASTER * least:
            best, least = size, time_s
    return best


def measure_chunk_mb(points: Sequence[Point], budget_s: float) -> float | None:
    """Return the fastest `engine.chunk_mb` for points of one stack key, measured in a first round.

    Sizes are tried in increasing order, as time allows. None if fewer than two sizes could be
    compared, or if the rows take different numbers of local steps.
    """
    first = points[0].scenario
    known = estimate_trial(first, read_shape(first.data)).bytes
    room = int(first.engine.memory_gb * 2**30 // max(1, known))
    trials = min(first.trials, -(-ROWS // count_participants(first)), room)
    if not trials:
        return None
    engine = Engine(assemble(points[:1], range(trials)))
    device = engine.parts.streams.device
    found: list[tuple[float, float]] = []
    tried = set[int]()
    with torch.inference_mode():
        broadcast, cohort = engine.prepare_first_round()
        training, began = engine.training, time.perf_counter()
        if training.count_steps(cohort) is not None:
            return None
        row_bytes = training.estimate_row_bytes(broadcast)
        for size in CANDIDATES_MB[device.type]:
            rows = min(count_rows_within(size, row_bytes), cohort.num_rows)
            if not rows or rows in tried:
                continue
            tried.add(rows)
            took_s: list[float] = []
            for _ in range(3):
                at = time.perf_counter()
                training.train(broadcast, cohort, 0, rows, 0)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                took_s.append(time.perf_counter() - at)
            found.append((size, min(took_s[1:]) / rows))  # the first time is a warm-up
            if time.perf_counter() - began + 6 * found[-1][1] * rows > budget_s:
                break  # the next has twice the rows
    return find_fastest(found) if len(found) > 1 else None


def _make_cache_key(scenario: Scenario) -> str:
    """Return what the best size depends on: the machine, its programs, method, model and data."""
    training, engine = scenario.training, scenario.engine
    device = select_torch_device(engine.device).type
    parts = [
        *(extract_structure(part) for part in (scenario.algorithm, scenario.model)),
        scenario.data.name,
        [training.local_steps, training.batch_size, engine.dtype, engine.device_state],
        *([] if training.local_epochs is None else [training.local_epochs]),
        [
            get_device_name(device),
            engine.threads or torch.get_num_threads(),
            get_versions()["torch"],
        ],
    ]
    text = json.dumps(parts, sort_keys=True, default=str)
    return f"{scenario.algorithm.name} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read(path: Path) -> dict[str, float]:
    """Return the measurements; empty if the file is missing or not valid."""
    try:
        tree: Any = json.loads(read_text(path, MIB))
        most = max(max(sizes) for sizes in CANDIDATES_MB.values())
        return {str(key): float(mb) for key, mb in tree.items() if 0 < float(mb) <= most}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
