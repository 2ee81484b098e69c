"""Choose how many devices are worked on together: as many as the processor's cache takes best.

How much that is depends on the machine, the method and the model, so it is measured on local work
of the first round, once for each, where the run is long enough and the machine idle, and kept in
the user's cache. A stack runs with what its plan says: repeats, workers and resumes are equal bit
by bit.
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
from otafl.engine.assembly import assemble, torch_device
from otafl.engine.engine import Engine
from otafl.engine.local_training import rows_within
from otafl.results.environment import device_name, versions
from otafl.running.duration import bound_seconds
from otafl.running.memory import count_participants, estimate_trial
from otafl.scenario import Point, Scenario, structure

CACHE_DIR = "OTAFL_CACHE_DIR"
"""Environment variable: the folder of what is measured, the user's cache if not given."""

CANDIDATES_MB = {"cpu": (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0), "cuda": (64.0, 256.0, 1024.0)}

SHARE = 0.02
"""Most of a run's computing time that measuring may take."""

LEAST_S = 0.25
"""A run that leaves less for measuring is not measured."""

MOST_S = 10.0
"""Measuring takes no longer."""

ROWS = 64
"""Devices of all trials that are measured on, where a stack has so many."""

IDLE = 0.5
"""Share of the processors up to which a machine's load counts as idle."""

FASTER = 0.97
"""What takes more than this share of the time of what is smaller is not taken in its place."""


def chosen(points: Sequence[Point], tell: Callable[[str], None]) -> float | None:
    """Return `engine.chunk_mb` for points of one stack key: as it is set, was measured before or
    now; None for the default. tell: is told of what was measured now.
    """
    scenario = points[0].scenario
    if scenario.engine.chunk_mb is not None:
        return scenario.engine.chunk_mb
    path, key = cache(), _key(scenario)
    known = _read(path)
    if key in known:
        return known[key]
    runs, shape = len(points) * scenario.trials, read_shape(scenario.data)
    model = models.build(scenario.model, shape.input_shape, shape.classes)
    budget_s = min(MOST_S, SHARE * runs * bound_seconds(scenario, shape, model))
    if budget_s < LEAST_S or busy():
        return None
    found = measured(points, budget_s)
    if found is not None:
        try:
            write_text(path, json.dumps(_read(path) | {key: found}, indent=1))
        except WriteError:
            return None  # the next run would choose anew
        name = scenario.algorithm.name
        tell(f"engine.chunk_mb: {found:g} is best here for {name}, measured; kept in {path}")
    return found


def cache() -> Path:
    """Return the file of what was measured on this machine."""
    return Path(os.environ.get(CACHE_DIR) or pooch.os_cache("otafl")) / "chunks.json"


def busy() -> bool:
    """Say whether other programs use this machine's processors; also where there is no telling."""
    try:
        return os.getloadavg()[0] > IDLE * (os.cpu_count() or 1)
    except (OSError, AttributeError):
        return True


def fastest(seconds: Iterable[tuple[float, float]]) -> float:
    """Return the size of the shortest time, of pairs (size, time of a device) from the smallest
    size on; larger ones only where they are clearly faster.
    """
    best, least = 0.0, float("inf")
    for size, time_s in seconds:
        if time_s < FASTER * least:
            best, least = size, time_s
    return best


def measured(points: Sequence[Point], budget_s: float) -> float | None:
    """Return the fastest `engine.chunk_mb` for points of one stack key, measured on local work of
    their first round from the smallest size on, as many as there is time for; None where that is
    not enough to compare.
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
        broadcast, cohort = engine.first_work()
        training, began = engine.training, time.perf_counter()
        row_bytes = training.row_bytes(broadcast)
        for size in CANDIDATES_MB[device.type]:
            rows = min(rows_within(size, row_bytes), cohort.size)
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
    return fastest(found) if len(found) > 1 else None


def _key(scenario: Scenario) -> str:
    """Return what the best size depends on: the machine, its programs, method, model and data."""
    training, engine = scenario.training, scenario.engine
    device = torch_device(engine.device).type
    parts = [
        *(structure(part) for part in (scenario.algorithm, scenario.model)),
        scenario.data.name,
        [training.local_steps, training.batch_size, engine.dtype, engine.device_state],
        [device_name(device), engine.threads or torch.get_num_threads(), versions()["torch"]],
    ]
    text = json.dumps(parts, sort_keys=True, default=str)
    return f"{scenario.algorithm.name} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read(path: Path) -> dict[str, float]:
    """Return what was measured; nothing where the file is not there, or not what it should be."""
    try:
        tree: Any = json.loads(read_text(path, MIB))
        most = max(max(sizes) for sizes in CANDIDATES_MB.values())
        return {str(key): float(mb) for key, mb in tree.items() if 0 < float(mb) <= most}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
