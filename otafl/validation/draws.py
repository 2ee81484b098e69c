"""Laws of draws: partitions, augmentation, presence of devices, and their selection.

Laws of selections over fading are closed forms of Rayleigh fading.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import Cohort, LinkBudget
from otafl.core.rng import Streams
from otafl.data.partitions import Partition, PartitionTask
from otafl.data.partitions.by_class import Dirichlet, DirichletMix
from otafl.devices.availability import build_lives
from otafl.selection.base import SelectionSetup
from otafl.selection.selections import draw_subset
from otafl.validation.bench import Bench
from otafl.validation.checks import (
    Check,
    check_exact,
    check_mean,
    check_share,
    counts,
    largest,
    state_law,
)

CLASSES = 10
CONCENTRATIONS = ("alpha={:g}", (0.01, 0.1, 1.0, 100.0))
PROPORTIONS = ("alpha={:g}", (0.2, 1.0, 5.0))


def _assign(partition: Partition, labels: np.ndarray, devices: int, seed: int) -> list[np.ndarray]:
    """Return the samples of each device."""
    task = PartitionTask(labels, devices, np.random.default_rng(seed), None)
    return list(partition.assign_samples(task))


@state_law("partition dirichlet: share of a class", "Beta(alpha, (K - 1) alpha)", *PROPORTIONS)
def _dirichlet(bench: Bench, alpha: float) -> Iterator[Check]:
    """Compare the share of a class that one of four devices gets.

    It has rint(share * size) samples, so bins that end at half samples are exact.
    """
    devices, classes, size = 4, 200, 200
    labels, found = np.repeat(np.arange(classes), size), []
    for seed in range(bench.scale_size(20)):
        first = _assign(Dirichlet(alpha=alpha), labels, devices, seed)[0]
        found.append(np.bincount(labels[first], minlength=classes) / size)
    share, law = np.concatenate(found), stats.beta(alpha, (devices - 1) * alpha)
    mean, variance = law.stats("mv")
    yield check_mean(float(mean), share, "mean", bias=1e-4)
    yield check_mean(float(variance), (share - mean) ** 2, "variance", bias=1e-5)
    inner = np.unique(np.floor(law.ppf(np.linspace(0.05, 0.95, 19)) * size) + 0.5) / size
    edges = np.concatenate([[-0.5], inner, [1.5]])
    yield counts(np.diff(law.cdf(edges)) * len(share), np.histogram(share, edges)[0], "all")


@state_law(
    "partition dirichlet_mix: concentration",
    "E sum p^2 = (alpha + 1) / (C alpha + 1)",
    *CONCENTRATIONS,
)
def _mix(bench: Bench, alpha: float) -> Iterator[Check]:
    """Compare the chance that two of a device's samples have one class, where no class runs out.

    The mean share of each class is 1 / C; the largest deviation of a class is checked.
    """
    devices, each = bench.scale_size(200), 300
    labels = np.arange(200_000) % CLASSES
    parts = _assign(DirichletMix(alpha=alpha, samples_per_device=each), labels, devices, 0)
    count = np.array([np.bincount(labels[part], minlength=CLASSES) for part in parts])
    alike = (count * (count - 1)).sum(1) / (each * (each - 1))
    law = (alpha + 1.0) / (CLASSES * alpha + 1.0)
    yield check_mean(law, alike, "two of one class")
    of_share = law / CLASSES - 1.0 / CLASSES**2
    of_samples = (1.0 - law) / CLASSES / each
    deviation = np.sqrt((of_share + of_samples) / devices)
    yield largest((count.mean(0) / each - 1.0 / CLASSES) / deviation, "mean shares")


DEVICES = 3000
"""Devices whose presence is recorded."""

DAY_S = 86400.0
ON_S, OFF_S = 20.0, 30.0
SHARE = ON_S / (ON_S + OFF_S)

DAYS: dict[str, dict[str, float]] = {
    "short sessions": {"mean": 0.6, "amplitude": 0.38, "mean_session_s": 3600.0},
    "long sessions": {"mean": 0.4, "amplitude": 0.2, "mean_session_s": 21600.0},
}
PEAK_HOUR = 14.0

Life = list[tuple[float, bool]]


@functools.lru_cache(maxsize=4)
def _record_lives(bench: Bench, name: str, until_s: float, **keys: float) -> list[Life]:
    """Record the changes of presence of each device, which begin with its state at 0."""
    devices = bench.scale_size(DEVICES)
    section = registry.load_settings_class("availability", name)(**keys)
    availability: Any = section
    lives = []
    for changes in build_lives(availability, devices, Streams([11], [0]))[0]:
        assert changes is not None
        life = list(itertools.takewhile(lambda change: change[0] <= until_s, changes))
        lives.append(life if life and life[0][0] == 0.0 else [(0.0, True), *life])
    return lives


def _is_present(life: Life, at_s: float) -> bool:
    return life[bisect.bisect_right(life, (at_s, True)) - 1][1]


def _check_presence(lives: list[Life], at_s: float, share: float, case: str) -> Check:
    return check_share(share, sum(_is_present(life, at_s) for life in lives), len(lives), case)


def _record_markov(bench: Bench) -> list[Life]:
    return _record_lives(bench, "markov", 400.0, mean_on_s=ON_S, mean_off_s=OFF_S)


@state_law("availability markov: memory", "p +- ((1 - p) or p) exp(-(1/on + 1/off) t)")
def _markov_memory(bench: Bench) -> Iterator[Check]:
    """Count the devices present t after starts 100 s apart, of those present or absent there.

    After 100 s nearly nothing is left of a state, so the starts are independent.
    """
    lives, starts_s = _record_markov(bench), range(0, 400, 100)
    for at_s in (3.0, 10.0):
        left = math.exp(-(1.0 / ON_S + 1.0 / OFF_S) * at_s)
        for present, case in ((True, "present"), (False, "absent")):
            later = [
                _is_present(life, start_s + at_s)
                for life in lives
                for start_s in starts_s
                if _is_present(life, start_s) == present
            ]
            law = SHARE + (present - SHARE) * left
            yield check_share(law, sum(later), len(later), f"{case}, {at_s:g} s later")


def _record_day(bench: Bench, case: str) -> list[Life]:
    return _record_lives(bench, "diurnal", DAY_S, **DAYS[case], peak_hour=PEAK_HOUR)


@state_law("availability diurnal: share over the day", "m + a cos(w (t - peak))", "{}", DAYS)
def _day_share(bench: Bench, case: str) -> Iterator[Check]:
    """Count the present devices every four hours."""
    keys = DAYS[case]
    for hour in range(0, 25, 4):
        angle = 2.0 * math.pi * (hour - PEAK_HOUR) / 24.0
        law = keys["mean"] + keys["amplitude"] * math.cos(angle)
        yield _check_presence(_record_day(bench, case), hour * 3600.0, law, f"after {hour} h")


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
