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
from otafl.core.compiled_module import CompiledModule
from otafl.core.contracts import Cohort
from otafl.core.errors import WriteError
from otafl.core.files import write_text
from otafl.core.inputs import MIB, read_text
from otafl.data.shape import read_shape
from otafl.downlink.base import Delivery
from otafl.engine.assembly import assemble, select_torch_device
from otafl.engine.engine import Engine
from otafl.engine.local_training import LocalTraining, count_rows_within
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

MIN_ROWS, MAX_ROWS = 64, 4096
"""Devices, of all trials, in a measurement, as far as a run has them and memory allows.

Between these bounds they are as many as the largest size has room for.
"""

COPIES_BYTES = 8
"""Bytes of a row for each parameter, at least: one received and one trained in single precision."""

ASSEMBLY_SHARE = 0.25
"""Largest share of the time of a measurement for the assembly of more trials, about."""

WHOLE_S = 0.1
"""Time of all devices up to which they are all trained in a measurement."""

WAY = "row by row"
"""How this program trains. Measurements of programs that train otherwise do not count."""

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
    device = select_torch_device(first.engine.device)
    engine = _assemble_trials(points, CANDIDATES_MB[device.type][-1], budget_s)
    if engine is None:
        return None
    found: list[tuple[float, float]] = []
    tried = set[int]()
    with torch.inference_mode(), CompiledModule.load_at_once():
        broadcast, cohort = engine.prepare_first_round()
        training = engine.training
        if training.count_steps(cohort) is not None:
            return None
        training.train(broadcast, cohort, 0, 1, 0)  # may wait for the compiler
        began = time.perf_counter()
        row_bytes = training.estimate_row_bytes(broadcast)
        for size in CANDIDATES_MB[device.type]:
            rows = min(count_rows_within(size, row_bytes), cohort.num_rows)
            if not rows or rows in tried:
                continue
            tried.add(rows)
            found.append((size, _time_device(training, broadcast, cohort, rows)))
            if time.perf_counter() - began + 6 * found[-1][1] * rows > budget_s:
                break  # the next has twice the rows
    return find_fastest(found) if len(found) > 1 else None


def _assemble_trials(points: Sequence[Point], most_mb: float, budget_s: float) -> Engine | None:
    """Return an engine with enough devices to measure sizes up to `most_mb`.

    It has fewer where memory or the time of the measurement are short; None if memory has no room
    for a trial.
    """
    first = points[0].scenario
    trial = estimate_trial(first, read_shape(first.data))
    room = min(first.trials, int(first.engine.memory_gb * 2**30 // max(1, trial.bytes)))
    if not room:
        return None
    wanted = count_rows_within(most_mb, COPIES_BYTES * trial.model.num_params)
    few, many = (
        min(room, -(-rows // count_participants(first)))
        for rows in (MIN_ROWS, min(max(MIN_ROWS, wanted), MAX_ROWS))
    )
    began = time.perf_counter()
    engine = Engine(assemble(points[:1], range(few)))
    many = min(many, int(few * ASSEMBLY_SHARE * budget_s / (time.perf_counter() - began)))
    return Engine(assemble(points[:1], range(many))) if many > few else engine


def _time_device(training: LocalTraining, broadcast: Delivery, cohort: Cohort, rows: int) -> float:
    """Return the seconds of a device, of `rows` devices that are trained together.

    Where it takes little time, all devices are trained, chunk by chunk, as in a round.
    """

    def train() -> None:
        training.train(broadcast, cohort, 0, rows, 0)

    def train_all() -> None:
        training.train_cohort(broadcast, cohort, 0, rows)

    warm_s = _time(train, cohort)
    if warm_s * cohort.num_rows > WHOLE_S * rows:
        return min(_time(train, cohort) for _ in range(2)) / rows
    return min(_time(train_all, cohort) for _ in range(5)) / cohort.num_rows


def _time(call: Callable[[], None], cohort: Cohort) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    call()
    if cohort.trial.is_cuda:
        torch.cuda.synchronize(cohort.trial.device)
    return time.perf_counter() - began


def _make_cache_key(scenario: Scenario) -> str:
    """Return what the best size depends on: the machine, its programs, method, model and data."""
    training, engine = scenario.training, scenario.engine
    device = select_torch_device(engine.device).type
    parts = [
        *(extract_structure(part) for part in (scenario.algorithm, scenario.model)),
        scenario.data.name,
        [training.local_steps, training.batch_size, engine.dtype, engine.device_state],
        *([] if training.local_epochs is None else [training.local_epochs]),
        WAY,
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
