"""Laws of random choices: selections of devices, stragglers, capacity levels, forwarded models.

Those of selections over fading are closed forms of Rayleigh fading.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.selection.base import SelectionSetup
from otafl.selection.selections import draw_subset
from otafl.validation.bench import Bench
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    largest,
    state_law,
)

TRIALS, ROUNDS = 20, 400
RENYI = "Renyi 1953; sums of 1 / j"
BEST = ((1, 2), (1, 10), (3, 10))
"""Numbers of devices that are selected, and of all devices."""


def _check_counts(share: Tensor | np.ndarray, times: Tensor, of: int, case: str = "") -> Check:
    """Check how often each of several events happens, by the largest deviation."""
    p = torch.as_tensor(share, dtype=torch.float64).expand_as(times)
    off = (times.double().cpu() - of * p.cpu()) / (of * p * (1.0 - p)).sqrt().cpu()
    return largest(off.numpy(), case)


@functools.lru_cache(maxsize=4)
def _select(
    bench: Bench, name: str, wanted: int, gains: tuple[float, ...], **hyper: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the selected devices [R, S, K] under Rayleigh fading, and their channel power gains.

    Devices have the mean power gains `gains`, and a budget of one. They know their channels.
    """
    trials = bench.scale_size(TRIALS)
    streams = Streams([9] * trials, range(trials), bench.torch_device, torch.float64)
    one = torch.ones(trials, dtype=torch.float64, device=bench.torch_device)
    gain = torch.tensor(gains, dtype=torch.float64, device=bench.torch_device).expand(trials, -1)
    budget = LinkBudget(torch.ones_like(gain), gain, one, one, one.bool())
    fading = registry.load_settings_class("channel", "rayleigh")()
    channel: Any = registry.make_component("channel", fading, budget, len(gains), streams, {})
    known: Any = SimpleNamespace(estimate=lambda h, gain, round: h)
    setup = SelectionSetup(known, budget, streams, {k: v * one for k, v in hyper.items()})
    section = registry.load_settings_class("selection", name)()
    selection: Any = registry.make_component("selection", section, setup)
    free = np.ones((trials, len(gains)), bool)
    chosen, power = [], []
    for round in range(ROUNDS):
        state = channel.get_state(round)
        chosen.append(selection.select_devices(free, wanted, round, state))
        power.append((state.gain * state.h[..., 0, 0, 0].abs().square()).cpu().numpy())
    return np.stack(chosen), np.stack(power)


@state_law("selection best_channel: sum of the best gains", RENYI, "{0[0]} of {0[1]}", BEST)
def _best_channel(bench: Bench, case: tuple[int, int]) -> Iterator[Check]:
    """Compare the total power gain of the selected devices, whose mean gain is one.

    The i-th largest of K exponential numbers has the mean sum_{j=i}^K 1 / j.
    """
    wanted, devices = case
    chosen, power = _select(bench, "best_channel", wanted, (1.0,) * devices)
    law = sum(1.0 / j for i in range(1, wanted + 1) for j in range(i, devices + 1))
    yield check_mean(law, (power * chosen).sum(2))


@state_law("selection poisson: independent devices", "binomial; q, and q^2 of pairs")
def _poisson(bench: Bench) -> Iterator[Check]:
    """Count how often each of five devices of two trials is selected, and pairs of them.

    Pairs are those of neighbouring devices, and of two rounds of a device.
    """
    q = torch.tensor([0.1, 0.7], dtype=torch.float64)
    streams = Streams([1, 1], [0, 1], bench.torch_device, torch.float64)
    setup: Any = SimpleNamespace(streams=streams, hyper={"probability": q})
    section = registry.load_settings_class("selection", "poisson")()
    selection: Any = registry.make_component("selection", section, setup)
    free, rounds = np.ones((2, 5), bool), bench.scale_size(4000)
    state: Any = None
    drawn = np.stack([selection.select_devices(free, 5, t, state) for t in range(rounds)])
    chosen, share = torch.from_numpy(drawn), q[:, None]
    yield _check_counts(share, chosen.sum(0), rounds, "devices")
    pairs = chosen[:, :, :-1] & chosen[:, :, 1:]
    yield _check_counts(share**2, pairs.sum(0), rounds, "neighbours")
    twice = chosen[0::2] & chosen[1::2]
    yield _check_counts(share**2, twice.sum(0), len(twice), "two rounds")


def _build_cohort(bench: Bench, sizes: Sequence[int]) -> tuple[Cohort, Streams]:
    """Build a cohort of trials of several sizes."""
    place = bench.torch_device
    trial = torch.arange(len(sizes), device=place).repeat_interleave(
        torch.tensor(sizes, device=place)
    )
    device = torch.cat([torch.arange(size, device=place) for size in sizes])
    weight = torch.ones(len(trial), device=place)
    streams = Streams([0] * len(sizes), range(len(sizes)), place)
    return Cohort.create(trial, device, weight, tuple(sizes), max(sizes)), streams


@state_law("selection of transmitters: equally likely sets", "hypergeometric")
def _transmitters(bench: Bench) -> Iterator[Check]:
    """Count how often two of 5, of 1 and of 8 participants transmit, and neighbours both do."""
    sizes, rounds = (5, 1, 8), bench.scale_size(1600)
    cohort, streams = _build_cohort(bench, sizes)
    drawn = torch.stack([draw_subset(cohort, 2, t, streams) for t in range(rounds)])
    for size, part in zip(sizes, drawn.split(sizes, 1), strict=True):
        few = min(size, 2)
        most = float((part.sum(1) - few).abs().max())
        yield check_exact(0.0, most, 0.0, f"of {size}, number")
        if size > few:
            yield _check_counts(np.array(2 / size), part.sum(0), rounds, f"of {size}")
            both = (part[:, :-1] & part[:, 1:]).sum(0)
            yield _check_counts(np.array(2 / size / (size - 1)), both, rounds, f"of {size}, pairs")
