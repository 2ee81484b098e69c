"""Memory and time of a stack by formulas, and errors where memory is short.

A trial holds the state of its servers before and after a round, that of its devices, the payloads
of the participants, the channel, the indices of the samples, and a few numbers of each device. What
local training and evaluation need beside it is bounded by `engine.chunk_mb`.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch

from otafl import models
from otafl.core.contracts import Cohort, Workload
from otafl.core.errors import UserError
from otafl.core.hyper import build_hyper
from otafl.core.rng import Streams
from otafl.core.suggestions import format_count
from otafl.data.loading import load_cached
from otafl.engine.assembly import build_algorithm
from otafl.models.base import Model
from otafl.scenario import Scenario

DEVICE_BYTES = 300
"""Bytes of the numbers that a device of a trial has in addition to its state.

These are sample indices, channel, powers, joules and seconds. Measured as the growth of the
resident memory per trial, in a run of 10^6 devices of which 20 take part.
"""

INDEX_BYTES = 16
"""Bytes of a trial for each training sample: the index of the devices' samples."""

FEW_DEVICES = 6
"""Devices with which the state of a method is created, at most.

So many have all models that FedFomo's devices download in a round.
"""

CHANNEL_COPIES = 4
"""Arrays of the size of the channel in a round: the channel, its estimate, and products."""

MAX_FLOPS_PER_S = 1e11
"""No thread does more: a run takes at least its operations by this many."""


def estimate_trial(scenario: Scenario) -> int:
    """Read the data, and estimate the bytes that one trial adds to a stack.

    The state of a method is created for one device and for a few; further ones take as much each.
    Of a model that is larger than this machine's memory, the estimate is the size of the model.
    """
    model = build_model(scenario)
    dtype = _get_dtype(scenario)
    least = model.num_params * dtype.itemsize
    if least > _get_total_memory(scenario):
        return least
    servers = scenario.topology.count(scenario)
    of_server = scenario.topology.make_server_scenario(scenario)
    count, participants = of_server.devices.count, count_participants(of_server)
    channel = participants * math.prod(_get_channel_size(of_server))
    some = max(2, min(count, FEW_DEVICES))
    of_one = _count_numbers(of_server, model, 1)[0]
    of_few, device, payload = _count_numbers(of_server, model, some)
    server = of_one + (count - 1) * (of_few - of_one) // (some - 1)
    # device state of all that have taken part, and as much again in a round's work
    rows = count + min(count, participants * scenario.training.rounds)
    each = (4 * server + 2 * participants * payload + rows * device) * dtype.itemsize
    each += DEVICE_BYTES * count + CHANNEL_COPIES * channel * dtype.to_complex().itemsize
    return int(servers * each + INDEX_BYTES * len(load_cached(scenario.data).y_train))


def build_model(scenario: Scenario) -> Model:
    """Read the data, and build the model for their shape, without the weights of a start."""
    data = load_cached(scenario.data)
    return models.build(scenario.model, data.input_shape, data.classes, scenario.loss)


def count_trials_at_once(scenario: Scenario) -> int:
    """Return how many trials of a point, or of points like it, `engine.memory_gb` has room for."""
    return max(1, int(scenario.engine.memory_gb * 2**30 // estimate_trial(scenario)))


def check_room(scenario: Scenario) -> None:
    """Read the data, and raise UserError if one trial takes more memory than this machine has."""
    if shortage := find_shortage(scenario):
        raise UserError(shortage)


def find_shortage(scenario: Scenario) -> str:
    """Return a sentence if a trial takes more memory than this machine has, else an empty one."""
    least, there = estimate_trial(scenario), _get_total_memory(scenario)
    if least <= there:
        return ""
    antennas, groups = _get_channel_size(scenario)
    return (
        f"model: one trial takes {least / 1e9:,.0f} GB at least ({scenario.model.name} of "
        f"{build_model(scenario).num_params:,} parameters, "
        f"{format_count(scenario.devices.count, 'device')}, {format_count(antennas, 'antenna')}, "
        f"{format_count(groups, 'sub-carrier group')}), and this machine has {there / 1e9:,.0f} "
        "GB; use a smaller model, fewer devices or antennas, or another machine"
    )


def bound_seconds(scenario: Scenario) -> float:
    """Return a lower bound on the computing time of a trial, in seconds of all threads.

    It is the time of the local work, at a speed that no thread exceeds.
    """
    training, count = scenario.training, scenario.devices.count
    held = np.full((1, 1), len(load_cached(scenario.data).y_train) / count)
    load = Workload(training.local_steps, training.batch_size, held, training.local_epochs)
    algorithm = build_algorithm(scenario, build_model(scenario))
    flops = float(np.sum(algorithm.count_flops(load))) * count_participants(scenario)
    threads = scenario.engine.threads or torch.get_num_threads()
    return flops * training.rounds / (MAX_FLOPS_PER_S * threads)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error means a lack of memory, of the host or of a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "out of memory" in text
    )


def count_participants(scenario: Scenario) -> int:
    """Return the largest number of participants in a round."""
    return int(scenario.devices.participants or scenario.devices.count)


def _get_total_memory(scenario: Scenario) -> int:
    """Return the total bytes of memory of the processor that computes."""
    if scenario.engine.device != "cpu" and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _get_dtype(scenario: Scenario) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, scenario.engine.dtype)
    return dtype


def _get_channel_size(scenario: Scenario) -> tuple[int, int]:
    """Return the numbers of antennas and of sub-carrier groups."""
    channel = scenario.channel
    return getattr(channel, "antennas", None) or 1, getattr(channel, "subcarrier_groups", None) or 1


def _count_numbers(scenario: Scenario, model: Model, count: int) -> tuple[int, int, int]:
    """Count the numbers of the state of a server of so many devices, of one, and of a payload."""
    devices = scenario.devices.model_copy(update={"count": count, "participants": None})
    algorithm = build_algorithm(scenario.model_copy(update={"devices": devices}), model)
    streams = Streams([scenario.seed], [0], "cpu", _get_dtype(scenario))
    hyper = build_hyper([scenario.algorithm.values], streams)
    server, own = algorithm.init(streams, hyper)
    first = torch.zeros(1, dtype=torch.int64)
    cohort = Cohort.create(first, first, torch.ones(1), (1,), 1)
    return (
        sum(block[0].numel() for block in server.values()),
        sum(block[0, 0].numel() for block in own.values()),
        algorithm.broadcast(server, cohort).num_coordinates,
    )
