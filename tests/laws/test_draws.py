"""Laws of what is drawn: faults, hardware, presence, data, and random choices of methods."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from support.closed_forms import holds

from otafl.algorithms.baselines.zeroth_order import draw_directions
from otafl.algorithms.personal.fedfomo import FedFomo
from otafl.clock.trial_clock import TrialClock
from otafl.codecs.sparse import draw_random_subset
from otafl.core import registry
from otafl.core.contracts import Cohort, Context
from otafl.core.rng import Streams
from otafl.data.loading import load
from otafl.data.partitions import PartitionTask
from otafl.data.partitions.by_class import Dirichlet, DirichletMix
from otafl.data.ridge import Ridge
from otafl.devices.availability import build_lives
from otafl.devices.compute.drawn import DrawnCompute
from otafl.devices.compute.kinds import Fixed, LognormalCompute
from otafl.devices.faults import Faults
from otafl.devices.protocols import Rules
from otafl.selection.selections import draw_subset
from otafl.validation.bench import CONFORMANCE, Bench
from otafl.validation.checks import (
    LEVEL,
    Check,
    check_distribution,
    check_exact,
    check_mean,
    check_mean_square,
    check_normal,
    check_share,
)

pytestmark = pytest.mark.law

SAMPLES = 5000


def make_cohort(trials: int, devices: int) -> Cohort:
    pair = torch.arange(trials * devices)
    weight = torch.ones(len(pair), dtype=torch.float64)
    return Cohort.create(pair // devices, pair % devices, weight, (devices,) * trials, devices)


@holds()
def test_devices_crash_by_themselves(bench: Bench) -> Iterator[Check]:
    chance = 0.4
    section = Faults.Settings.model_validate({"crash_probability": chance})
    faults = Faults([section] * 2, Streams([3] * 2, range(2), torch.device("cpu"), torch.float64))
    cohort, rounds = make_cohort(2, 50), range(200)
    drawn = [faults.draw_crashes(cohort, round) for round in rounds]
    hit = torch.stack([one < 1.0 for one in drawn if one is not None]).view(200, 2, 50).numpy()
    yield check_share(chance, int(hit.sum()), hit.size, "crashes")
    pairs = {
        "devices": hit[:, :, :-1] & hit[:, :, 1:],
        "rounds": hit[:-1] & hit[1:],
        "trials": hit[:, 0] & hit[:, 1],
    }
    for case, both in pairs.items():
        yield check_share(chance**2, int(both.sum()), both.size, f"two {case}")


MEDIAN, SIGMA = 3e9, 0.8
LOGNORMAL = stats.lognorm(SIGMA, scale=MEDIAN)


def check_logarithms(speeds: np.ndarray) -> Check:
    """Check the variance of the logarithms of log-normal speeds."""
    ratio = np.log(speeds / MEDIAN) ** 2 / SIGMA**2
    return check_mean_square(SIGMA**2, ratio, ratio.size, "variance of the logarithms")


@holds()
def test_quantities_of_devices_follow_their_laws(bench: Bench) -> Iterator[Check]:
    """Quantities of a device are independent."""
    section = DrawnCompute.model_validate(
        {
            "flops_per_s": {"lognormal": {"median": MEDIAN, "sigma": SIGMA}},
            "battery_j": {"uniform": [100, 300]},
            "harvest_w": {"uniform": [0.0, 0.5]},
        }
    )
    devices = section.build_hardware(SAMPLES, np.random.default_rng(4))
    columns = {name: getattr(devices, name) for name in ("flops_per_s", "battery_j", "harvest_w")}
    laws = (LOGNORMAL, stats.uniform(100.0, 200.0), stats.uniform(0.0, 0.5))
    for (name, values), law in zip(columns.items(), laws, strict=True):
        yield check_distribution(values, law.cdf, name)
    yield check_logarithms(devices.flops_per_s)
    for (one, first), (other, second) in itertools.combinations(columns.items(), 2):
        found = float(stats.spearmanr(first, second).statistic)
        yield check_normal(0.0, found, 1.0 / math.sqrt(SAMPLES - 1), f"{one}, {other}")


@holds()
def test_speeds_are_log_normal(bench: Bench) -> Iterator[Check]:
    section = LognormalCompute(median_flops_per_s=MEDIAN, sigma=SIGMA)
    speeds = section.build_hardware(SAMPLES, np.random.default_rng(1)).flops_per_s
    yield check_distribution(speeds, LOGNORMAL.cdf)
    yield check_logarithms(speeds)


def find_present(name: str, at_s: Sequence[float], **keys: float) -> np.ndarray:
    """Whether each of 750 devices is present at these seconds, bool [devices, times]."""
    section = registry.load_settings_class("availability", name)(**keys)
    availability: Any = section
    present = []
    for changes in build_lives(availability, 750, Streams([11], [0]))[0]:
        life = [(-1.0, True), *itertools.takewhile(lambda one: one[0] <= max(at_s), changes or ())]
        present.append([life[bisect.bisect_right(life, (at, True)) - 1][1] for at in at_s])
    return np.array(present)


@holds()
def test_presence_is_remembered(bench: Bench) -> Iterator[Check]:
    """p +- ((1 - p) or p) exp(-(1/on + 1/off) t) after t = 5 s; after 100 s nothing is left."""
    starts, share = [0.0, 100.0, 200.0, 300.0], 20.0 / 50.0
    at_s = [at + later for at in starts for later in (0.0, 5.0)]
    found = find_present("markov", at_s, mean_on_s=20.0, mean_off_s=30.0).reshape(-1, 2)
    for present in (True, False):
        later = found[found[:, 0] == present, 1]
        law = share + (present - share) * math.exp(-(1.0 / 20.0 + 1.0 / 30.0) * 5.0)
        yield check_share(law, int(later.sum()), len(later), "present" if present else "absent")


@holds()
def test_waits_for_periodic_slots_are_uniform(bench: Bench) -> Iterator[Check]:
    """Of devices whose work does not depend on the slots, which begin every two seconds."""
    draw, devices = np.random.default_rng(7), 1000
    rules = Rules(0, 2.0, late="next", broadcast_first=False)
    trial, free = TrialClock(Fixed().build_hardware(devices, draw), rules, log=True), range(devices)
    for round in range(100):
        none = [0.0] * len(free)
        trial.start(round, list(free), none, draw.exponential(600.0, len(free)).tolist(), none)
        free = trial.admit().on_time
        trial.transmit(1.0 if free else 0.0)
    waits = [one.end_s - one.start_s for one in trial.history() if one.activity == "wait"]
    yield check_distribution(np.array(waits), stats.uniform(0.0, 2.0).cdf)


DAYS = {
    "short sessions": {"mean": 0.6, "amplitude": 0.38, "mean_session_s": 3600.0},
    "long sessions": {"mean": 0.4, "amplitude": 0.2, "mean_session_s": 21600.0},
    "spread": {"mean": 0.5, "amplitude": 0.4, "mean_session_s": 3600.0, "spread_hours": 12.0},
}


@holds(DAYS)
def test_presence_follows_the_day(bench: Bench, case: str) -> Iterator[Check]:
    """Peaks spread over 12 hours take the amplitude times sinc(12 / 24)."""
    keys, hours = DAYS[case], (0, 4, 8, 12, 16, 20)
    found = find_present("diurnal", [3600.0 * hour for hour in hours], peak_hour=0.0, **keys)
    amplitude = keys["amplitude"] * np.sinc(keys.get("spread_hours", 0.0) / 24.0)
    for hour, present in zip(hours, found.T, strict=True):
        law = keys["mean"] + amplitude * math.cos(2.0 * math.pi * hour / 24.0)
        yield check_share(float(law), int(present.sum()), len(present), f"after {hour} h")


@holds((0.2, 5.0))
def test_shares_of_a_class_follow_a_beta_law(bench: Bench, alpha: float) -> Iterator[Check]:
    """Of four devices Beta(alpha, 3 alpha)."""
    labels, found = np.repeat(np.arange(200), 200), []
    for seed in range(5):
        task = PartitionTask(labels, 4, np.random.default_rng(seed), None)
        first, *_ = Dirichlet(alpha=alpha).assign_samples(task)
        found.append(np.bincount(labels[first], minlength=200) / 200)
    share, (mean, variance) = np.concatenate(found), stats.beta(alpha, 3 * alpha).stats("mv")
    yield check_mean(float(mean), share, "mean", bias=1e-4)
    yield check_mean(float(variance), (share - mean) ** 2, "variance", bias=1e-5)


@holds((0.1, 1.0))
def test_samples_of_a_mix_are_alike(bench: Bench, alpha: float) -> Iterator[Check]:
    """Two of a device's samples have one class with (alpha + 1) / (C alpha + 1)."""
    labels, each = np.arange(200_000) % 10, 300
    task = PartitionTask(labels, 50, np.random.default_rng(0), None)
    parts = DirichletMix(alpha=alpha, samples_per_device=each).assign_samples(task)
    count = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    alike = (count * (count - 1)).sum(1) / (each * (each - 1))
    yield check_mean((alpha + 1.0) / (10 * alpha + 1.0), alike)


@holds()
def test_the_last_device_draws_no_other_mix(bench: Bench) -> Iterator[Check]:
    """The device that draws last takes what is left, which is a mix of more classes."""
    labels = np.arange(2000) % 10
    largest_class = []
    for seed in range(200):
        task = PartitionTask(labels, 20, np.random.default_rng(seed), None)
        parts = list(DirichletMix(alpha=0.02).assign_samples(task))
        largest_class.append([np.bincount(labels[part]).max() for part in parts])
    found = np.array(largest_class)
    yield check_mean(0.0, found[:, -4:].mean(1) - found.mean(1))


@holds()
def test_labels_of_ridge_regression_have_their_noise(bench: Bench) -> Iterator[Check]:
    noise = 0.3
    data = load(Ridge(optimum_spread=0.0, label_noise=noise, user_samples=100))
    x, y = data.x_train.astype(float), data.y_train.astype(float)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    freedom = left.size - x.shape[1]
    yield check_mean_square(noise**2, (left**2).sum() / freedom / noise**2, freedom)


def check_counts(share: float | torch.Tensor, times: torch.Tensor, of: int) -> Check:
    """Check how often each of several events happens, by the largest deviation."""
    p = torch.as_tensor(share, dtype=torch.float64).expand_as(times)
    off = ((times - of * p) / (of * p * (1.0 - p)).sqrt()).abs()
    return Check(0.0, float(off.max()), 0.0, float(stats.norm.isf(LEVEL / 2 / off.numel())))


@holds()
def test_poisson_sampling_selects_devices_by_themselves(bench: Bench) -> Iterator[Check]:
    """With probability q, and neighbours both with q^2."""
    q, rounds, free = 0.4, 1000, np.ones((1, 5), bool)
    streams = Streams([1], [0], torch.device("cpu"), torch.float64)
    setup: Any = SimpleNamespace(streams=streams, hyper={"probability": torch.tensor([q])})
    section = registry.load_settings_class("selection", "poisson")()
    selection: Any = registry.make_component("selection", section, setup)
    state: Any = None
    drawn = [selection.select_devices(free, 5, round, state)[0] for round in range(rounds)]
    chosen = torch.from_numpy(np.stack(drawn))
    yield check_counts(q, chosen.sum(0), rounds)
    yield check_counts(q**2, (chosen[:, :-1] & chosen[:, 1:]).sum(0), rounds)


@holds()
def test_sets_of_transmitters_are_equally_likely(bench: Bench) -> Iterator[Check]:
    """Two of five participants transmit, each with 2 / 5, neighbours both with 1 / 10."""
    streams = Streams([0], [0], torch.device("cpu"))
    cohort = make_cohort(1, 5)
    drawn = torch.stack([draw_subset(cohort, 2, round, streams) for round in range(400)])
    yield check_exact(0.0, float((drawn.sum(1) - 2).abs().max()), 0.0, "number")
    yield check_counts(0.4, drawn.sum(0), 400)
    yield check_counts(0.1, (drawn[:, :-1] & drawn[:, 1:]).sum(0), 400)


@holds()
def test_devices_without_affinity_are_offered_alike(bench: Bench) -> Iterator[Check]:
    """Each of the seven others is among the three models of a device with 3 / 7."""
    devices, wanted, rounds = 8, 3, 200
    model: Any = SimpleNamespace(shapes={})
    method = FedFomo(FedFomo.Settings(models=wanted), model, devices)
    streams = Streams([1], [0], torch.device("cpu"), torch.float64)
    none = torch.zeros(1, devices, devices, dtype=torch.float64)
    offers = [method.offer(none, t, streams)[0] for t in range(rounds)]
    given = sum(none[0].scatter(1, offer, 1.0) for offer in offers)
    assert isinstance(given, torch.Tensor)
    others = ~torch.eye(devices, dtype=torch.bool)
    yield check_exact(0.0, float(given.diagonal().sum()), 0.0, "itself")
    yield check_counts(wanted / (devices - 1), given[others], rounds)


@holds()
def test_subsets_of_coordinates_are_equally_likely(bench: Bench) -> Iterator[Check]:
    """Of three out of eight, each coordinate and each pair."""
    streams = Streams([1], [0], torch.device("cpu"))
    some = draw_random_subset(streams.draw_uniform(CONFORMANCE, 0, (SAMPLES, 8))[0], 3).double()
    law = torch.full((8, 8), 3 / 8 * 2 / 7, dtype=torch.float64).fill_diagonal_(3 / 8)
    yield check_counts(law, some.mT @ some, SAMPLES)


@holds()
def test_directions_of_slopes_are_standard_normal(bench: Bench) -> Iterator[Check]:
    context = Context(make_cohort(1, 1), {}, Streams([1], [0], torch.device("cpu")), 0)
    zero = torch.zeros(100, dtype=torch.int64)
    directions = draw_directions(context, zero, torch.arange(100), 50)
    yield check_distribution(directions.numpy(), stats.norm.cdf)
